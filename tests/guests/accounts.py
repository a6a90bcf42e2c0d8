"""A database of serial numbers: a transaction a number, then a line in the file `serial`.

Prints `ready PID`, and `ended` with status 7 once the file `stop` is there.
"""

import os
import sqlite3
import sys
import time

database = sqlite3.connect("accounts.db", isolation_level=None)
database.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY, amount INTEGER)")
database.execute("CREATE TABLE total (amount INTEGER)")
database.execute("INSERT INTO total VALUES (0)")
serial = os.open("serial", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
print("ready", os.getpid(), flush=True)
number = 0
while not os.path.exists("stop"):
    database.execute("BEGIN IMMEDIATE")
    database.execute("INSERT INTO entries VALUES (?, ?)", (number, number * 7 % 101))
    database.execute("UPDATE total SET amount = amount + ?", (number * 7 % 101,))
    database.execute("COMMIT")
    line = b"%d\n" % number
    assert os.write(serial, line) == len(line)
    number += 1
    time.sleep(0.005)
database.close()
print("ended")
sys.exit(7)
