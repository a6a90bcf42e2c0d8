"""Imports all that the library has to offer, module by module, and uses some of it."""
import importlib
import sys
import zlib

rounds = int(sys.argv[1])
NAMES = """
json csv decimal fractions statistics random datetime calendar zoneinfo textwrap difflib string re struct
collections heapq bisect array weakref types copy pprint enum graphlib numbers math cmath itertools functools
operator pathlib os.path fileinput stat filecmp tempfile glob fnmatch shutil pickle shelve dbm sqlite3 zlib gzip
bz2 lzma zipfile tarfile configparser tomllib netrc plistlib hashlib hmac secrets io time argparse getopt logging
getpass curses platform errno ctypes threading multiprocessing subprocess sched queue asyncio socket ssl select
selectors mmap email mailbox mimetypes base64 binascii quopri html xml.etree.ElementTree xml.dom.minidom xml.sax
urllib.request urllib.parse http.client http.server ftplib smtplib imaplib uuid socketserver xmlrpc.client
ipaddress wave colorsys gettext locale cmd shlex pdb timeit trace tracemalloc gc inspect site code codeop
zipimport pkgutil modulefinder runpy importlib.metadata ast symtable token tokenize tabnanny pyclbr py_compile
compileall dis pickletools unittest doctest concurrent.futures contextlib abc atexit traceback dataclasses
""".split()

state = 7
check = 0
for number in range(1, rounds + 1):
    for name in NAMES:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            print("without", name, type(error).__name__)
            continue
        check = zlib.crc32(" ".join(sorted(dir(module))).encode(), check)
        for _ in range(1000):
            state = (state * 48271) % 2147483647
    import ctypes
    import decimal
    import hashlib
    import json
    import lzma

    library = ctypes.CDLL("libm.so.6")
    library.cbrt.restype = ctypes.c_double
    library.cbrt.argtypes = [ctypes.c_double]
    text = json.dumps({"root": library.cbrt(27.0 * number), "precise": str(decimal.Decimal(number).sqrt())})
    packed = lzma.compress(text.encode() * 50)
    print(number, len(sys.modules) > 100, text, hashlib.sha256(packed).hexdigest()[:16], check, flush=True)
    # What was imported goes, so that the next round opens, reads and maps it anew.
    keep = {"sys", "zlib", "importlib", "builtins", "os", "io", "warnings"}
    for name in NAMES:
        top = name.split(".")[0]
        if top in {"threading", "weakref", "types", "copy", "functools", "collections", "abc", "re", "enum", "stat"}:
            continue
        for loaded in [m for m in sys.modules if m == top or m.startswith(top + ".")]:
            if loaded.split(".")[0] not in keep and getattr(sys.modules[loaded], "__file__", None) \
                    and sys.modules[loaded].__file__.endswith(".py"):
                del sys.modules[loaded]
