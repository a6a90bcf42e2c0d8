"""The same as bench_stamps.c, with the memory that an interpreter has: MEGABYTES of objects."""
import os
import random
import sys
import time

size = int(sys.argv[1]) << 20
chance = random.Random(1)
memory = [chance.randbytes(4096) for _ in range(size // 4096)]
print("pid", os.getpid(), flush=True)
last = tick = time.monotonic()
while True:
    time.sleep(0.00025)
    place = chance.randrange(len(memory))
    memory[place] = memory[place][1:] + b"x"
    now = time.monotonic()
    shown = now - last > 0.002
    if shown:
        print("gap", round((now - last) * 1e6))
    if now - tick > 0.02:
        tick = now
        shown = True
        print("tick")
    if shown:
        sys.stdout.flush()
        now = time.monotonic()
    last = now
