"""Child processes in every way that the library knows, while the parent computes in between."""
import multiprocessing
import os
import signal
import subprocess
import sys

rounds = int(sys.argv[1])


def compute(seed):
    for _ in range(30000):
        seed = (seed * 48271) % 2147483647
    return seed


def child(seed, connection):
    connection.send(compute(seed))
    connection.close()
    sys.exit(seed % 5)


ended = []
signal.signal(signal.SIGCHLD, lambda *_: ended.append(1))
for number in range(1, rounds + 1):
    print("round", number, compute(number), flush=True)
    text = subprocess.run(["tr", "a-z", "A-Z"], input=f"text {number}", capture_output=True, text=True, check=True)
    print(text.stdout)
    status = subprocess.run(["sh", "-c", f"exit {number % 7}"], check=False).returncode
    first = subprocess.Popen(["seq", "1", "500"], stdout=subprocess.PIPE)
    second = subprocess.Popen(["sort", "-r", "-n"], stdin=first.stdout, stdout=subprocess.PIPE)
    first.stdout.close()
    lines = second.communicate()[0].split()
    print(status, first.wait(), second.returncode, lines[0], len(lines))
    near, far = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    process = context.Process(target=child, args=(number, far))
    process.start()
    print(near.recv())
    process.join()
    print(process.exitcode)
    victim = subprocess.Popen(["sleep", "1000"])
    victim.terminate()
    print(victim.wait())
    pid = os.fork()
    if pid == 0:
        os._exit(number % 11)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print("children seen to end:", len(ended) > 0)
