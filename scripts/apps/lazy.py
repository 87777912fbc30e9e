"""What HiNFS' figure 14 runs beside Postmark: PostgreSQL, which syncs what it writes, a make, which syncs
nothing, and a grep, which writes nothing."""

import glob
import os
import random
import re
import subprocess
import sys
import tempfile
import time

from running import run, timed

FOLDERS = 16
# Of each folder: what is compiled, and what lies beside it.
COMPILED = 12
BESIDE = 150


def reaped(pid):
    """Seconds of a CPU that the ended children of a process have had."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[13]) + int(words[14])) / os.sysconf("SC_CLK_TCK")


def postgres(runner, folder, transactions):
    """TPC-B-like transactions a second over two connections, and us of a CPU that the server's
    processes for them take for each."""
    bin_of = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    data = f"{folder}/data"
    run(runner, [f"{bin_of}/initdb", "-D", data, "-A", "trust", "--no-instructions"])
    with (
        tempfile.TemporaryDirectory(prefix="pg-") as sockets,
        open(f"{sockets}/log", "w+", encoding="utf-8") as log,
    ):
        words = ["-D", data, "-k", sockets, "-c", "listen_addresses=", "-c", "shared_buffers=16MB"]
        server = subprocess.Popen(runner + [f"{bin_of}/postgres"] + words, stdout=log, stderr=log)
        try:
            ready = [f"{bin_of}/pg_isready", "-q", "-h", sockets]
            while subprocess.run(ready, check=False).returncode != 0:
                if server.poll() is not None:
                    log.seek(0)
                    sys.exit(f"postgres in {folder} ended: {log.read()[-2000:]}")
                time.sleep(0.05)
            bench = ["pgbench", "-n", "-h", sockets]
            run([], bench + ["-q", "-i", "-s", "2", "postgres"])
            before = reaped(server.pid)
            said = run([], bench + ["-c", "2", "-j", "1", "-t", str(transactions // 2), "postgres"])
            rate = float(re.findall(r"^tps = ([\d.]+)", said, re.MULTILINE)[-1])
            return rate, (reaped(server.pid) - before) / transactions * 1e6
        finally:
            # Without waiting for the connections; it writes all of its pages then.
            server.terminate()
            server.wait()


def source(name, random_of):
    """A C file of some 10 KB, which no other one is like."""
    def function(number):
        sums = "\n".join(
            f"    sum = sum * {random_of.randrange(3, 99)} + (sum >> {random_of.randrange(1, 9)}) + n;"
            for _ in range(10)
        )
        head = f"unsigned {name}_{number}(unsigned n)\n{{\n    unsigned sum = 1;\n"
        return f"{head}{sums}\n    return sum;\n}}\n"

    return "\n".join(function(number) for number in range(20))


def make_tree(folder):
    """A tree like a kernel's: folders with an archive each, most files of which are not compiled."""
    random_of = random.Random(14)
    for directory in range(FOLDERS):
        at = f"{folder}/d{directory}"
        os.makedirs(at)
        for number in range(COMPILED + BESIDE):
            name = f"d{directory}_f{number}"
            kind = "c" if number < COMPILED else "h"
            with open(f"{at}/{name}.{kind}", "w", encoding="ascii") as file:
                file.write(source(name, random_of))
    objects = [f"d{d}/d{d}_f{f}.o" for d in range(FOLDERS) for f in range(COMPILED)]
    archives = [f"d{d}/built-in.a" for d in range(FOLDERS)]
    rules = [".PHONY: all", "all: all.o", "all.o: " + " ".join(archives)]
    rules += ["\tld -r -o $@ --whole-archive $^"]
    for directory in range(FOLDERS):
        at = f"d{directory}"
        rules += [f"{at}/built-in.a: " + " ".join(o for o in objects if o.startswith(at + "/"))]
        rules += ["\trm -f $@; ar rcs $@ $^"]
    rules += ["%.o: %.c", "\tgcc -O0 -c -MD -o $@ $<"]
    with open(f"{folder}/Makefile", "w", encoding="ascii") as file:
        file.write("\n".join(rules) + "\n")
    return len(objects)


def parts(runner, folder, scale):
    """Names, and what each runs: figures by name, a rate and us of a CPU each."""
    tree = f"{folder}/tree"
    files = make_tree(tree)
    searched = FOLDERS * (COMPILED + BESIDE)
    make = ["make", "-s", "-j2", "-C", tree]
    look = ["sh", "-c", f"for n in 1 2 3; do grep -r absent {tree}; done; true"]
    yield "make", lambda: {"make": timed(runner, make, files)}
    yield "grep", lambda: {"grep": timed(runner, look, searched * 3)}
    yield "PostgreSQL", lambda: {"PostgreSQL": postgres(runner, folder, 4000 * scale)}
