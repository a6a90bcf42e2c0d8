"""Threads that share queues, locks, conditions and semaphores; some wait, some compute."""
import queue
import sys
import threading
import zlib

rounds = int(sys.argv[1])
work = queue.Queue(maxsize=8)
done = queue.Queue()
turn = threading.Condition()
whose = 0
order = []
tickets = threading.Semaphore(2)
total = 0
lock = threading.Lock()


def worker():
    global total
    while True:
        item = work.get()
        if item is None:
            break
        with tickets:
            value = zlib.crc32(bytes(range(256)) * 40, item)
            for _ in range(2000):
                value = (value * 48271) % 2147483647
        with lock:
            total += value
        done.put((item, value))


def round_robin(own, count, laps):
    """Each thread waits for its turn: many waits on one condition."""
    global whose
    for lap in range(laps):
        with turn:
            turn.wait_for(lambda: whose == own)
            if lap % 10 == 0:
                order.append(own)
            whose = (whose + 1) % count
            turn.notify_all()


workers = [threading.Thread(target=worker) for _ in range(6)]
robins = [threading.Thread(target=round_robin, args=(own, 4, rounds * 10)) for own in range(4)]
barrier = threading.Barrier(3)


def meet(own):
    for lap in range(rounds):
        barrier.wait()
        if own == 0 and lap % 20 == 0:
            print("met", lap, flush=True)
        barrier.wait()


meeters = [threading.Thread(target=meet, args=(own,)) for own in range(3)]
for thread in workers + robins + meeters:
    thread.start()

results = []
expected = rounds * 8
for item in range(expected):
    work.put(item)
    while True:
        try:
            results.append(done.get_nowait())
        except queue.Empty:
            break
for _ in workers:
    work.put(None)
for thread in workers + robins + meeters:
    thread.join()
while len(results) < expected:
    results.append(done.get(timeout=60))
results.sort()
print(len(results), total, zlib.crc32(repr(results).encode()))
print("turns", len(order), zlib.crc32(repr(order).encode()))
