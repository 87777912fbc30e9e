"""SQLite, Redis and RocksDB's db_bench, whose writes are durable before they count."""

import os
import re
import signal
import subprocess
import sys
import time

from running import run, timed, used


def sqlite(runner, folder, journal, rows):
    """Rows inserted a second, each a durable transaction of its own, and us of a CPU for each."""
    base = ["sqlite3", f"{folder}/{journal}.db"]
    made = f"PRAGMA journal_mode={journal}; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);"
    run(runner, base + [made])
    inserts = "".join(f"INSERT INTO t(v) VALUES('{'v' * 100}{row}');\n" for row in range(rows))
    figures = timed(runner, base, rows, input="PRAGMA synchronous=FULL;\n" + inserts)
    found = run(runner, base + ["SELECT count(*) FROM t; PRAGMA integrity_check;"]).split()
    if found != [str(rows), "ok"]:
        sys.exit(f"sqlite in {folder}: {found}")
    return figures


def taken(schedule):
    """Nanoseconds of a CPU that a process' main thread has had."""
    with open(schedule, encoding="ascii") as file:
        return int(file.read().split()[0])


def redis(runner, folder, clients, requests):
    """SETs a second of so many connections, each of them in the log before it is answered, and us of
    a CPU that the server's main thread takes for each."""
    socket = f"/tmp/novale-apps-{os.getpid()}.sock"
    server = ["redis-server", "--port", "0", "--unixsocket", socket, "--dir", folder, "--save", ""]
    server += ["--appendonly", "yes", "--appendfsync", "always", "--logfile", f"{folder}/log"]
    running = subprocess.Popen(runner + server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ping = ["redis-cli", "-s", socket, "ping"]
        for _ in range(200):
            if subprocess.run(ping, capture_output=True, text=True, check=False).stdout == "PONG\n":
                break
            time.sleep(0.05)
        schedule = f"/proc/{running.pid}/schedstat"
        before = taken(schedule)
        bench = ["redis-benchmark", "-s", socket, "-t", "set", "-q", "-r", "100000"]
        said = run([], bench + ["-n", str(requests), "-c", str(clients)])
        rate = float(re.findall(r"([\d.]+) requests per second", said)[-1])
        return rate, (taken(schedule) - before) / requests / 1e3
    finally:
        subprocess.run(["redis-cli", "-s", socket, "shutdown"], capture_output=True, check=False)
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()


def rocksdb(runner, folder, count):
    """What db_bench does a second; writes are in the log, synced, before they count."""
    names = ["fillseq", "fillrandom", "overwrite", "readrandom"]
    command = ["db_bench", f"--benchmarks={','.join(names)}", f"--db={folder}/db", "--sync=1"]
    command += [f"--num={count}", "--value_size=100", "--compression_type=none"]
    before = used()
    said = run(runner, command)
    rates = {"db_bench all four": (None, (used() - before) / count / len(names) * 1e6)}
    for name in names:
        found = re.search(rf"^{name} .*?(\d+) ops/sec", said, re.MULTILINE)
        if not found:
            sys.exit(f"db_bench did not say how fast {name} is: {said[-2000:]}")
        rates[f"db_bench {name}"] = (float(found.group(1)), None)
    return rates


def parts(runner, folder, scale):
    """Names, and what each runs: figures by name, a rate and us of a CPU each."""
    def one(name, figures_of):
        return name, lambda: {name: figures_of()}

    yield one("SQLite, rollback journal", lambda: sqlite(runner, folder, "delete", 3000 * scale))
    yield one("SQLite, WAL", lambda: sqlite(runner, folder, "wal", 20000 * scale))
    for clients, requests in [(1, 20000 * scale), (50, 50000 * scale)]:
        of = f"{folder}/redis-{clients}"
        os.mkdir(of)
        words = "1 connection" if clients == 1 else f"{clients} connections"
        yield one(f"Redis, {words}", lambda of=of, n=clients, r=requests: redis(runner, of, n, r))
    yield "db_bench all four", lambda: rocksdb(runner, folder, 50000 * scale)
