"""Runs SQLite, Redis and RocksDB's db_bench in several folders in turn, and prints what each does a
second: medians with spread, and the median of each round's ratio to the folder called tmpfs. On a busy
machine programs wait for CPUs that others have: so what an operation takes of a CPU in the program
itself, the kernel's part included, stands besides, in us; of a mount its daemon's part is not in it.
Called by scripts/apps.sh.

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
    rates = {"all four": (None, (used() - before) / count / len(names) * 1e6)}
    for name in names:
        found = re.search(rf"^{name} .*?(\d+) ops/sec", said, re.MULTILINE)
        if not found:
            sys.exit(f"db_bench did not say how fast {name} is: {said[-2000:]}")
        rates[name] = (float(found.group(1)), None)
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
            for what, figures in measure(runner, own, scale).items():
                results[name].setdefault(what, []).append(figures)
            shutil.rmtree(own)
    if as_json:
        print(json.dumps({"rounds": rounds, "scale": scale, "a_second_and_cpu_us": results}))
        return
    head = ["a second"]
    for name in results:
        head += [name, "spread"] + (["of tmpfs"] if name != "tmpfs" else [])
        head += [f"{name}: us of a CPU"] + (["of tmpfs"] if name != "tmpfs" else [])
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for what in next(iter(results.values())):
        row = [what]
        for name, all_of in results.items():
            for figure, shown in enumerate(["{:,.0f}", "{:.1f}"]):
                row += cells(name, figure, shown, [each[what] for each in [all_of, results["tmpfs"]]])
        print("| " + " | ".join(row) + " |")


def cells(name, figure, shown, pair):
    """A figure's median, spread where it is a rate, and ratio to that of tmpfs."""
    ours, other = ([round_of[figure] for round_of in rounds] for rounds in pair)
    if None in ours:
        return [""] * (2 - figure + (name != "tmpfs"))
    texts = [shown.format(statistics.median(ours))]
    if figure == 0:
        texts.append(f"{min(ours):,.0f}-{max(ours):,.0f}")
    if name != "tmpfs":
        ratios = [each / beside for each, beside in zip(ours, other)]
        texts.append(f"{statistics.median(ratios):.2f}")
    return texts


main()
