"""Many clients of an echo server, all alive at once; each checks that it gets back what it sent.

    echo_clients CLIENTS ROUNDS

starts the server whose path is in ../prepared/server.
"""
import asyncio
import os
import subprocess
import sys
import time
import zlib

clients, rounds = int(sys.argv[1]), int(sys.argv[2])


async def client(own, port, all_here):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    all_here.append(own)
    while len(all_here) < clients:
        await asyncio.sleep(0.01)
    check = 0
    for number in range(rounds):
        message = f"{own} {number} ".encode() * (1 + (own * 7 + number * 13) % 400)
        writer.write(message)
        answer = await asyncio.wait_for(reader.readexactly(len(message)), 60)
        if answer != message:
            sys.exit(f"client {own} got something else in round {number}")
        check = zlib.crc32(answer, check)
    writer.close()
    await writer.wait_closed()
    return check


async def main(port):
    all_here = []
    return await asyncio.gather(*(client(own, port, all_here) for own in range(clients)))


with open("../prepared/server", encoding="utf-8") as file:
    server = subprocess.Popen([file.read(), str(clients)], stdout=subprocess.PIPE, text=True)
deadline = time.monotonic() + 30
while not os.path.exists("port"):
    if time.monotonic() > deadline or server.poll() is not None:
        sys.exit("the server did not open its port")
    time.sleep(0.01)
with open("port", encoding="ascii") as file:
    checks = asyncio.run(main(int(file.read())))
for own in range(0, clients, 10):
    print(own, checks[own])
print(server.communicate()[0], "server", server.returncode)
