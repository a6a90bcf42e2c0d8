"""TCP, UDP and Unix sockets between threads of one program; listening, connected, and with poll."""
import os
import selectors
import socket
import sys
import threading
import zlib

rounds = int(sys.argv[1])
# Work between two messages.
BALLAST = bytes(1 << 20)


def serve(listener, clients):
    """A server for several clients, with an epoll of Python's; ends when all have left."""
    selector = selectors.DefaultSelector()
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ, None)
    left = 0
    while left < clients:
        for key, _ in selector.select(timeout=30):
            if key.fileobj is listener:
                peer, _ = listener.accept()
                selector.register(peer, selectors.EVENT_READ, peer)
                continue
            data = key.data.recv(65536)
            if data:
                key.data.sendall(data[::-1])
            else:
                selector.unregister(key.data)
                key.data.close()
                left += 1
    selector.close()
    listener.close()


def receive(stream, length):
    parts = []
    while length > 0:
        part = stream.recv(length)
        if not part:
            raise EOFError("the peer has gone")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def client(family, address, own, results):
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.connect(address)
        check = 0
        for number in range(rounds):
            message = f"{own} {number} ".encode() * (1 + number % 50)
            stream.sendall(message)
            check = zlib.crc32(receive(stream, len(message)), check)
            check = zlib.crc32(BALLAST, check)
        results[own] = check


results = {}
threads = []
for family, where in [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET6, ("::1", 0)), (socket.AF_UNIX, "socket")]:
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind(where)
    except OSError:
        # A machine without IPv6: then both runs lack it.
        continue
    listener.listen(16)
    threads.append(threading.Thread(target=serve, args=(listener, 3)))
    for number in range(3):
        name = f"{family.name} {number}"
        threads.append(threading.Thread(target=client, args=(family, listener.getsockname(), name, results)))

for thread in threads:
    thread.start()

near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
udp.settimeout(30)
check = 0
for number in range(rounds):
    reader, writer = os.pipe()
    socket.send_fds(near, [f"packet {number}".encode()], [writer])
    data, descriptors, _, _ = socket.recv_fds(far, 1000, 4)
    os.write(descriptors[0], data)
    check = zlib.crc32(os.read(reader, 1000), check)
    for descriptor in [reader, writer, *descriptors]:
        os.close(descriptor)
    udp.sendto(f"datagram {number}".encode(), udp.getsockname())
    check = zlib.crc32(udp.recvfrom(1000)[0], check)
    if number % 25 == 0:
        print("round", number, check, flush=True)

for thread in threads:
    thread.join()
os.unlink("socket")
for name in sorted(results):
    print(name, results[name])
print("descriptors and datagrams", check)
