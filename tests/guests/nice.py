"""Has a thread that is nicer than its first one, and becomes nicer on demand.

Prints `ready PID`; a line `nice N` makes the caller nicer by N, `batch` gives it that policy; each is
answered by its niceness and policy, and those of the other thread. Ends at the end of its input.
"""

import os
import sys
import threading

numbers = []
known = threading.Event()
end = threading.Event()


def other():
    numbers.append(threading.get_native_id())
    os.setpriority(os.PRIO_PROCESS, numbers[0], os.getpriority(os.PRIO_PROCESS, 0) + 2)
    known.set()
    end.wait()


thread = threading.Thread(target=other)
thread.start()
known.wait()
print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "nice":
        os.nice(int(words[1]))
    elif words[0] == "batch":
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    for tid in (0, numbers[0]):
        policy = "B" if os.sched_getscheduler(tid) == os.SCHED_BATCH else "TS"
        print(policy, os.getpriority(os.PRIO_PROCESS, tid), flush=True)
end.set()
thread.join()
