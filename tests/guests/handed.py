"""Uses descriptors that a helper, which stays at home, opens and hands over: with each comes a line that says what
came of it. Says `ready PID` before each, so that it can be moved there."""

import ctypes
import mmap
import os
import select
import signal
import socket
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
EPOLL_CTL, EPOLL_CREATE1, INOTIFY_INIT, INOTIFY_ADD, USERFAULTFD, PIDFD_SIGNAL = 233, 291, 294, 254, 323, 424
UFFDIO_API = 0xC018AA3F
IN_CREATE = 0x100


def call(number, *arguments):
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = LIBC.syscall(number, *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def fault_descriptor():
    return call(USERFAULTFD, 1)


HELPERS = {
    "memory": lambda: os.memfd_create("handed"),
    "process": lambda: os.pidfd_open(os.getpid()),
    "caller": lambda: os.pidfd_open(os.getppid()),
    "directory": lambda: os.open("/", os.O_RDONLY),
    "name": lambda: os.open("/etc/passwd", os.O_PATH),
    "status": lambda: os.open("/proc/self/stat", os.O_RDONLY),
    "event": lambda: os.eventfd(5),
    "watch": lambda: call(INOTIFY_INIT, 0),
    "epoll": lambda: call(EPOLL_CREATE1, 0),
    "pipe": lambda: os.pipe()[1],
    "faults": fault_descriptor,
    "socket": lambda: os.dup(listening.fileno()),
}


def helper(end):
    while word := end.recv(32).decode():
        descriptor = HELPERS[word]()
        socket.send_fds(end, [b"x"], [descriptor])
        os.close(descriptor)
    os._exit(0)


ours, theirs = socket.socketpair()
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen()
if os.fork() == 0:
    ours.close()
    helper(theirs)
theirs.close()


def handed(word):
    ours.send(word.encode())
    return socket.recv_fds(ours, 16, 4)[1][0]


def on_faults(descriptor):
    return call(16, descriptor, UFFDIO_API, ctypes.create_string_buffer(struct.pack("QQQ", 0xAA, 0, 0)))


USES = [
    ("memory", lambda fd: (os.pwrite(fd, b"handed", 0), os.ftruncate(fd, 8192), os.pread(fd, 8, 0))),
    ("memory", lambda fd: (os.ftruncate(fd, 4096), mmap.mmap(fd, 4096)[:2])),
    ("process", lambda fd: (call(PIDFD_SIGNAL, fd, 0, 0, 0), len(select.select([fd], [], [], 0)[0]))),
    ("caller", lambda fd: (call(PIDFD_SIGNAL, fd, int(signal.SIGURG), 0, 0))),
    ("directory", lambda fd: sorted(os.listdir(fd))[:3]),
    ("directory", lambda fd: os.read(os.open("proc/sys/kernel/ostype", os.O_RDONLY, dir_fd=fd), 9)),
    ("name", lambda fd: len(os.read(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY), 9))),
    ("status", lambda fd: b"python3" in os.read(fd, 100)),
    ("event", os.eventfd_read),
    ("watch", lambda fd: call(INOTIFY_ADD, fd, b"/tmp", IN_CREATE)),
    ("epoll", lambda fd: call(EPOLL_CTL, fd, 1, ours.fileno(), ctypes.create_string_buffer(struct.pack("=IQ", 1, 7)))),
    ("pipe", lambda fd: os.write(fd, b"nobody reads")),
    ("faults", on_faults),
    ("socket", lambda fd: socket.socket(fileno=os.dup(fd)).getsockname()[0]),
]

signal.signal(signal.SIGPIPE, signal.SIG_IGN)
for word, use in USES:
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    descriptor = handed(word)
    try:
        came = use(descriptor)
    except OSError as error:
        came = f"errno {error.errno}"
    os.close(descriptor)
    print(f"{word}: {came}", flush=True)
