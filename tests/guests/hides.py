"""Forbids others to look at it, or becomes another user, and works on.

Usage: hides.py DIRECTORY. Prints `ready PID`, and answers each line: `hide` and `show` change what it allows
(PR_SET_DUMPABLE), `become UID` its user ids, `work` uses memory, files, pipes, threads and signals.
"""

import ctypes
import hashlib
import os
import signal
import sys
import threading

PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4
libc = ctypes.CDLL(None)
table = {i: str(i) * 7 for i in range(20000)}
caught = 0


def catch(number, frame):
    global caught
    caught += 1


def work():
    digest = hashlib.sha256()
    for key in range(0, 20000, 7):
        table[key] = table[key][::-1]
        digest.update(table[key].encode())
    name = os.path.join(sys.argv[1], "work")
    with open(name, "w") as file:
        file.write("written" * 1000)
    with open(name) as file:
        digest.update(file.read().encode())
    os.unlink(name)
    reader, writer = os.pipe()
    made = threading.Thread(target=os.write, args=(writer, b"x" * 5000))
    made.start()
    made.join()
    digest.update(os.read(reader, 5000))
    os.close(reader)
    os.close(writer)
    before = caught
    os.kill(os.getpid(), signal.SIGUSR1)
    digest.update(b"%d" % (caught - before))
    return digest.hexdigest()


signal.signal(signal.SIGUSR1, catch)
print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "hide":
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    elif word == "show":
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    elif word == "become":
        os.setresuid(int(rest[0]), int(rest[0]), int(rest[0]))
    else:
        print(work(), flush=True)
        continue
    print(libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), os.getuid(), flush=True)
