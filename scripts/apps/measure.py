"""Runs SQLite, Redis and RocksDB's db_bench in several folders in turn, and prints what each does a
second: medians with spread, and the median of each round's ratio to the first folder. On a busy
machine programs wait for CPUs that others have: so what an operation takes of a CPU in the program
itself, the kernel's part included, stands besides, in us; of a mount its daemon's part is not in it.
Of a folder in a pool it says, too, how many bytes its memory was given to store.
Called by scripts/apps.sh.

measure.py ROUNDS SCALE table|json NOVALE NAME=FOLDER[=POOL[=COMMAND...]]...: programs run by COMMAND
where there is one.
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


def used():
    """Seconds of a CPU that programs run so far have taken."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def sqlite(runner, folder, journal, rows):
    """Rows inserted a second, each a durable transaction of its own, and us of a CPU for each."""
    base = ["sqlite3", f"{folder}/{journal}.db"]
    made = f"PRAGMA journal_mode={journal}; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);"
    run(runner, base + [made])
    inserts = "".join(f"INSERT INTO t(v) VALUES('{'v' * 100}{row}');\n" for row in range(rows))
    begun, before = time.monotonic(), used()
    run(runner, base, input="PRAGMA synchronous=FULL;\n" + inserts)
    took, cpu = time.monotonic() - begun, used() - before
    found = run(runner, base + ["SELECT count(*) FROM t; PRAGMA integrity_check;"]).split()
    if found != [str(rows), "ok"]:
        sys.exit(f"sqlite in {folder}: {found}")
    return rows / took, cpu / rows * 1e6


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


def measure(runner, folder, scale, stored):
    """All rates in a folder, once; and what `stored` says each part added to, by the part's name."""
    rates, bytes_of = {}, {}

    def part(name, figures_of):
        before = stored()
        rates.update(figures_of())
        bytes_of[name] = stored() - before

    def one(name, figures_of):
        part(name, lambda: {name: figures_of()})

    one("SQLite, rollback journal", lambda: sqlite(runner, folder, "delete", 3000 * scale))
    one("SQLite, WAL", lambda: sqlite(runner, folder, "wal", 20000 * scale))
    for clients, requests in [(1, 20000 * scale), (50, 50000 * scale)]:
        of = f"{folder}/redis-{clients}"
        os.mkdir(of)
        words = "1 connection" if clients == 1 else f"{clients} connections"
        one(f"Redis, {words}", lambda of=of, n=clients, r=requests: redis(runner, of, n, r))
    part("db_bench all four", lambda: rocksdb(runner, folder, 50000 * scale))
    return rates, bytes_of


def stored_in(novale, pool):
    """A function that says how many bytes a pool's memory was given to store so far; 0 of no pool."""
    if not pool:
        return lambda: 0
    return lambda: json.loads(run([novale], ["stats", "--json", pool]))["bytes_stored"]


def main():
    rounds, scale, as_json, novale = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "json", sys.argv[4]
    sides = []
    for word in sys.argv[5:]:
        name, folder, pool, command = (word.split("=", 3) + ["", ""])[:4]
        sides.append((name, folder, stored_in(novale, pool), command.split()))
    results = {name: {} for name, _, _, _ in sides}
    bytes_of = {name: {} for name, _, _, _ in sides}
    for turn in range(rounds):
        for name, folder, stored, runner in sides:
            print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
            own = f"{folder}/apps-{turn}"
            os.mkdir(own)
            rates, added = measure(runner, own, scale, stored)
            for what, figures in rates.items():
                results[name].setdefault(what, []).append(figures)
            for what, count in added.items():
                bytes_of[name].setdefault(what, []).append(count)
            shutil.rmtree(own)
    if as_json:
        said = {"a_second_and_cpu_us": results, "bytes_stored": bytes_of}
        print(json.dumps({"rounds": rounds, "scale": scale, **said}))
        return
    for title, figure, shown in [("a second", 0, "{:,.0f}"), ("us of a CPU", 1, "{:.1f}")]:
        print_table(title, shown, {
            name: {what: [each[figure] for each in figures] for what, figures in all_of.items()}
            for name, all_of in results.items()
        })
    in_pools = {name: parts for name, parts in bytes_of.items() if any(map(any, parts.values()))}
    print_table("bytes stored", "{:,.0f}", in_pools)


def print_table(title, shown, sides):
    """A figure of each side: the median, its spread, and the ratio to the first side."""
    first = next(iter(sides), None)
    if first is None:
        return
    head = [title]
    for name in sides:
        head += [name, "spread"] + ([f"of {first}"] if name != first else [])
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for what, beside in sides[first].items():
        if None in beside:
            continue
        row = [what]
        for name, rows in sides.items():
            ours = rows[what]
            row.append(shown.format(statistics.median(ours)))
            row.append(f"{shown.format(min(ours))}-{shown.format(max(ours))}")
            if name != first:
                row.append(f"{statistics.median(map(ratio, ours, beside)):.2f}")
        print("| " + " | ".join(row) + " |")
    print()


def ratio(ours, beside):
    """Ours of the other's; of nothing, none."""
    return ours / beside if beside else float("nan")


main()
