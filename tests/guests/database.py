"""A data base: transactions, an index, a rollback, a view; several connections."""
import sqlite3
import sys

rounds = int(sys.argv[1])
connection = sqlite3.connect("data.db", isolation_level=None)
connection.execute("PRAGMA journal_mode=DELETE")
connection.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT, balance INTEGER)")
connection.execute("CREATE TABLE journal (id INTEGER PRIMARY KEY, source INT, target INT, amount INT)")
connection.execute("CREATE INDEX by_owner ON account (owner)")
connection.execute("BEGIN")
connection.executemany("INSERT INTO account VALUES (?, ?, 1000)", [(i, f"owner {i % 17}") for i in range(500)])
connection.execute("COMMIT")
connection.create_function("twice", 1, lambda value: value * 2)
reader = sqlite3.connect("data.db")
state = 1


def number(bound):
    global state
    state = (state * 69069 + 1) % 2**32
    return state // 65536 % bound


for round_number in range(1, rounds + 1):
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(40):
        source, target, amount = number(500), number(500), number(50)
        connection.execute("UPDATE account SET balance = balance - ? WHERE id = ?", (amount, source))
        connection.execute("UPDATE account SET balance = balance + ? WHERE id = ?", (amount, target))
        connection.execute("INSERT INTO journal (source, target, amount) VALUES (?, ?, ?)", (source, target, amount))
    connection.execute("ROLLBACK" if round_number % 7 == 0 else "COMMIT")
    total, richest = reader.execute("SELECT sum(balance), max(balance) FROM account").fetchone()
    groups = reader.execute(
        "SELECT owner, sum(balance) FROM account GROUP BY owner ORDER BY 2 DESC, 1 LIMIT 3"
    ).fetchall()
    joined = connection.execute(
        "SELECT count(*), sum(twice(amount)) FROM journal JOIN account ON account.id = source WHERE balance > 900"
    ).fetchone()
    if total != 500000:
        sys.exit(f"money was made: {total}")
    if round_number % 20 == 0:
        print(round_number, richest, groups, joined, flush=True)
print(connection.execute("PRAGMA integrity_check").fetchone()[0])
reader.close()
connection.close()
