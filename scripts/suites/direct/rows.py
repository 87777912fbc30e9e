"""Inserts rows into a SQLite database, each in a transaction of its own, and prints the number of
each once it is committed: rows.py DATABASE WRITER COUNT."""
import os
import sqlite3
import sys

database, writer, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = sqlite3.connect(database, timeout=60, isolation_level=None)
connection.execute("PRAGMA synchronous=FULL")
for n in range(count):
    connection.execute("INSERT INTO t VALUES(?, ?, ?)", (writer, n, os.urandom(300)))
    print(n, flush=True)
