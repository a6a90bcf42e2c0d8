"""Arithmetic of all kinds: integers, floats, big numbers, lists, dictionaries, generators."""
import hashlib
import math
import sys

rounds = int(sys.argv[1])
digest = hashlib.sha256()
state = 12345


def number(bound):
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % bound


def primes(limit):
    sieve = bytearray([1]) * limit
    sieve[0:2] = b"\0\0"
    for candidate in range(2, math.isqrt(limit) + 1):
        if sieve[candidate]:
            sieve[candidate * candidate :: candidate] = bytes(len(range(candidate * candidate, limit, candidate)))
    return sum(sieve)


kept = {}
for round_number in range(1, rounds + 1):
    values = [number(1000) for _ in range(20000)]
    table = {}
    for position, value in enumerate(values):
        table.setdefault(value, []).append(position)
    longest = max(table.items(), key=lambda item: (len(item[1]), item[0]))
    total = math.fsum(math.sin(value) * math.sqrt(value) for value in values)
    factorial = math.factorial(200 + round_number % 50)
    kept[round_number % 40] = [str(value) for value in values[:2000]]
    digest.update(str((longest, factorial)).encode())
    print(round_number, primes(30000 + round_number), longest[0], f"{total:.9f}", digest.hexdigest()[:16])
    if round_number % 10 == 0:
        sys.stdout.flush()
print(len(kept), sum(len(text) for texts in kept.values() for text in texts))
