"""Replaces a file by a new one again and again, and prints the number of each once it is there:
replaced.py FOLDER. `replaced.py FOLDER LAST` looks whether one is whole that is not older than that."""
import os
import sys

folder = sys.argv[1]


def text(n):
    return f"{n} ".encode() * (n % 3000 + 1)


if len(sys.argv) > 2:
    found = open(f"{folder}/file", "rb").read()
    n = int(found.split(b" ")[0])
    assert found == text(n), f"{n} is not whole"
    assert int(sys.argv[2]) <= n <= int(sys.argv[2]) + 1, f"{n} is there"
    log = open(f"{folder}/log").read().splitlines()
    assert log == [str(line) for line in range(len(log))] and len(log) >= n, "the log"
    sys.exit()
os.makedirs(folder, exist_ok=True)
for n in range(1000000):
    with open(f"{folder}/new", "wb") as new:
        new.write(text(n))
        new.flush()
        os.fsync(new.fileno())
    os.replace(f"{folder}/new", f"{folder}/file")
    with open(f"{folder}/log", "a") as log:
        log.write(f"{n}\n")
    print(n, flush=True)
