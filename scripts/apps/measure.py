"""Runs SQLite, Redis and RocksDB's db_bench in several folders in turn, and prints what each does a
second: medians with spread, and the ratio to the folder called tmpfs. Called by scripts/apps.sh.

measure.py ROUNDS SCALE JSON NAME=FOLDER[=COMMAND...]...: programs run by COMMAND where there is one.
"""

import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time


def run(runner, command, **options):
    """Runs a program to its end and returns what it said."""
    done = subprocess.run(runner + command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def sqlite(runner, folder, journal, rows):
    """Rows inserted a second, each a durable transaction of its own."""
    base = ["sqlite3", f"{folder}/{journal}.db"]
    made = f"PRAGMA journal_mode={journal}; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);"
    run(runner, base + [made])
    inserts = "".join(f"INSERT INTO t(v) VALUES('{'v' * 100}{row}');\n" for row in range(rows))
    begun = time.monotonic()
    run(runner, base, input="PRAGMA synchronous=FULL;\n" + inserts)
    took = time.monotonic() - begun
    found = run(runner, base + ["SELECT count(*) FROM t; PRAGMA integrity_check;"]).split()
    if found != [str(rows), "ok"]:
        sys.exit(f"sqlite in {folder}: {found}")
    return rows / took


def redis(runner, folder, clients, requests):
    """SETs a second of so many connections, each of them in the log before it is answered."""
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
        bench = ["redis-benchmark", "-s", socket, "-t", "set", "-q", "-r", "100000"]
        said = run([], bench + ["-n", str(requests), "-c", str(clients)])
        return float(re.findall(r"([\d.]+) requests per second", said)[-1])
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
    said = run(runner, command)
    rates = {}
    for name in names:
        found = re.search(rf"^{name} .*?(\d+) ops/sec", said, re.MULTILINE)
        if not found:
            sys.exit(f"db_bench did not say how fast {name} is: {said[-2000:]}")
        rates[name] = float(found.group(1))
    return rates


def measure(runner, folder, scale):
    """All rates in a folder, once."""
    rates = {}
    rates["SQLite, rollback journal"] = sqlite(runner, folder, "delete", 3000 * scale)
    rates["SQLite, WAL"] = sqlite(runner, folder, "wal", 20000 * scale)
    for clients, requests in [(1, 20000 * scale), (50, 50000 * scale)]:
        of = f"{folder}/redis-{clients}"
        os.mkdir(of)
        words = "1 connection" if clients == 1 else f"{clients} connections"
        rates[f"Redis, {words}"] = redis(runner, of, clients, requests)
    for name, rate in rocksdb(runner, folder, 50000 * scale).items():
        rates[f"db_bench {name}"] = rate
    return rates


def main():
    rounds, scale, as_json = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "json"
    sides = []
    for word in sys.argv[4:]:
        name, folder, *command = word.split("=", 2)
        sides.append((name, folder, command[0].split() if command else []))
    results = {name: {} for name, _, _ in sides}
    for turn in range(rounds):
        for name, folder, runner in sides:
            own = f"{folder}/apps-{turn}"
            os.mkdir(own)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            for what, rate in measure(runner, own, scale).items():
                results[name].setdefault(what, []).append(rate)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            results[name].setdefault("CPU seconds of all of it", []).append(used)
            shutil.rmtree(own)
    if as_json:
        print(json.dumps({"rounds": rounds, "scale": scale, "per_second": results}))
        return
    head = ["a second"]
    for name in results:
        head += [name, "spread"] + (["of tmpfs"] if name != "tmpfs" else [])
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for what in next(iter(results.values())):
        row = [what]
        middle = {name: statistics.median(rates[what]) for name, rates in results.items()}
        for name, rates in results.items():
            all_of = rates[what]
            row += [f"{middle[name]:,.0f}", f"{min(all_of):,.0f}-{max(all_of):,.0f}"]
            if name != "tmpfs":
                row.append(f"{middle[name] / middle['tmpfs']:.2f}")
        print("| " + " | ".join(row) + " |")


main()
