#!/usr/bin/env python3
"""A pool of four slots under two writers, one through the mount and one that uses the pool directly: a slot is added,
one is evacuated and goes with an unmount, one is lost (its file is cut short). What was served by the second, what
`slot status` and `check` say, and whether what was acknowledged is there, read-only with the slot missing and after
`slot replace --lost`. As root:

    cargo build --release -p novale-cli -p novale-preload && scripts/slots.py --svg FILE

NOVALE is another program. `--json` prints all of it. It ends with 1 where bytes that were acknowledged are wrong, or
can't be read and are not named by `check`. All of it is taken down in the end."""

import argparse
import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DIRS, FILES, FILE_MAX = 12, 150, 192 << 10
SLOT = "64M"
SLOT_BYTES = 64 << 20
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOVALE = os.environ.get("NOVALE", os.path.join(ROOT, "target/release/novale"))


def digest(data):
    return hashlib.sha1(data).hexdigest()


# --- a writer: changes files at random, and knows of each what was acknowledged ------------------


class Writer:
    """Changes files of directories of its own until it gets SIGTERM. It tells each second's operations, and in the
    end of each file what it must have."""

    def __init__(self, top, result, seed):
        self.top, self.result, self.random = top, result, random.Random(seed)
        self.noise = random.Random(seed).randbytes(4 * FILE_MAX)
        # What a file has; of those that an operation failed on, what they may have.
        self.files, self.either = {}, {}
        self.dirs, self.count, self.stopped = [], 0, False

    def bytes(self, length):
        at = self.random.randrange(len(self.noise) - length)
        return self.noise[at : at + length]

    def load(self):
        with open(self.result) as file:
            before = json.load(file)
        self.dirs, self.count = before["dirs"], before["count"]
        for name, wanted in before["files"].items():
            with open(os.path.join(self.top, name), "rb") as file:
                data = file.read()
            assert [digest(data)] == wanted, f"{name} has other bytes"
            self.files[name] = bytearray(data)

    def path(self, name):
        return os.path.join(self.top, name)

    def make_dir(self):
        self.count += 1
        name = f"d{self.count}"
        os.mkdir(self.path(name))
        self.dirs.append(name)

    def store(self, name, at, data):
        fd = os.open(self.path(name), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            assert os.pwrite(fd, data, at) == len(data), "a short write"
        finally:
            os.close(fd)

    def make_file(self):
        self.count += 1
        directory = self.random.choice(self.dirs)
        name, data = f"{directory}/f{self.count}", self.bytes(self.random.randrange(1, 32 << 10))
        try:
            self.store(name, 0, data)
        except OSError:
            # Of a file that was never acknowledged nothing is asked. Its directory may be what is lost.
            self.dirs.remove(directory)
            raise
        self.files[name] = bytearray(data)
        return len(data)

    def change(self, name):
        """One operation on a file; returns what the file has then, and the bytes that were written."""
        old, kind = self.files[name], self.random.randrange(100)
        new = bytearray(old)
        if kind < 60:
            data = self.bytes(self.random.choice([100, 4096, 4096]))
            at = self.random.randrange(len(old) + 1)
        elif kind < 80 and len(old) < FILE_MAX:
            data, at = self.bytes(8192), len(old)
        elif kind < 85:
            data, at = b"", 0
            del new[len(new) // 2 :]
        else:
            data, at = self.bytes(self.random.randrange(1, 32 << 10)), 0
            new = bytearray()
        new[at : at + len(data)] = data
        may = [digest(old), digest(new)]
        try:
            if kind >= 85:
                self.store(name + ".new", 0, data)
                os.rename(self.path(name + ".new"), self.path(name))
            elif data:
                self.store(name, at, data)
            else:
                os.truncate(self.path(name), len(new))
        except OSError:
            del self.files[name]
            self.either[name] = may
            raise
        self.files[name] = new
        return len(data)

    def step(self):
        if not self.dirs:
            self.make_dir()
            return 0
        if len(self.files) < FILES:
            return self.make_file()
        return self.change(self.random.choice(list(self.files)))

    def run(self):
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopped", True))
        if os.path.exists(self.result):
            self.load()
        else:
            os.mkdir(self.top)
            for _ in range(DIRS):
                self.make_dir()
        now, seen = int(time.time()), [0, 0, 0]
        while not self.stopped:
            try:
                seen[1] += self.step()
                seen[0] += 1
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                seen[2] += 1
            if int(time.time()) != now:
                print(json.dumps([now, *seen]), flush=True)
                now, seen = int(time.time()), [0, 0, 0]
        print(json.dumps([now, *seen]), flush=True)
        files = {name: [digest(data)] for name, data in self.files.items()}
        told = {"files": files, "either": self.either, "dirs": self.dirs, "count": self.count}
        with open(self.result, "w") as file:
            json.dump(told, file)


# --- what was done to the pool ---------------------------------------------------------------------


class Run:
    def __init__(self, seconds):
        self.seconds = seconds
        self.pool = tempfile.mkdtemp(prefix="novale-slots-", dir="/dev/shm")
        self.work = tempfile.mkdtemp(prefix="novale-slots-")
        self.dir = os.path.join(self.work, "mount")
        os.mkdir(self.dir)
        self.writers, self.served, self.events, self.reported = [], {}, [], []
        self.begun, self.left_out, self.unmounted = None, [], ""

    def slot(self, name):
        return os.path.join(self.pool, name)

    def novale(self, *words, codes=(0,)):
        done = subprocess.run([NOVALE, *words], capture_output=True, text=True, check=False)
        if done.returncode not in codes:
            raise SystemExit(f"{' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def timed(self, what, *words, codes=(0,)):
        """A command, as an event of the time line."""
        start = time.time()
        done = self.novale(*words, codes=codes)
        self.events.append((start, what, time.time() - start))
        return done

    def start(self):
        ways = [("mount", []), ("direct", [NOVALE, "run", "--strict", "--mount", self.dir, "--"])]
        for seed, (name, before) in enumerate(ways):
            out = open(os.path.join(self.work, f"{name}.served"), "a")
            top, result = os.path.join(self.dir, name), os.path.join(self.work, f"{name}.result")
            call = [*before, sys.executable, os.path.abspath(__file__), "--writer", top, result]
            self.writers.append(subprocess.Popen([*call, str(seed)], stdout=out))
            out.close()
        self.begun = self.begun or time.time()

    def stop(self):
        for writer in self.writers:
            writer.send_signal(signal.SIGTERM)
        for writer in self.writers:
            if writer.wait() != 0:
                raise SystemExit(f"a writer ended with {writer.returncode}")
        self.writers = []

    def report(self, when, *where):
        told = json.loads(self.novale("slot", "status", "--json", *(where or [self.dir])).stdout)
        for slot in told["slots"]:
            path = os.path.basename(slot["path"] or "-")
            used, emptying = slot["bytes_used"], slot.get("emptying") or {}
            self.reported.append(
                {
                    "when": when,
                    "slot": slot["slot"],
                    "file": path,
                    "state": slot["state"],
                    "used_kb": None if used is None else used >> 10,
                    "pages_moved": emptying.get("pages_moved"),
                }
            )
        return told

    def needed(self, slots):
        """The slots in which the root and the writers' own directories lie: without them nothing is found."""
        shown = [self.novale("dump", *slots, "path", path).stdout for path in ("/", "/mount", "/direct")]
        return {int(slot) for slot in re.findall(r"\b(\d+):0x", "".join(shown))}

    def judge(self, named):
        """Each file against what was acknowledged; `named` are the paths that `check` names."""
        found = {"whole": [], "lost, named": 0, "lost, not named": [], "wrong": []}
        for way in ("mount", "direct"):
            with open(os.path.join(self.work, f"{way}.result")) as file:
                told = json.load(file)
            for name, may in [*told["files"].items(), *told["either"].items()]:
                path = f"/{way}/{name}"
                try:
                    with open(self.dir + path, "rb") as file:
                        has = digest(file.read())
                except FileNotFoundError:
                    has = None
                except OSError as error:
                    has = error.errno
                if has in may:
                    found["whole"].append(path)
                elif named is not None and has not in (errno.EIO, None):
                    found["wrong"].append(path)
                elif named is None or path in named or os.path.dirname(path) in named:
                    found["lost, named"] += 1
                else:
                    found["lost, not named"].append(path)
        return found

    def run(self):
        a, b, c, d, e, new = (self.slot(name) for name in ("a", "b", "c", "d", "e", "new"))
        self.novale("mkfs", "--size", SLOT, a, b, c, d)
        self.novale("mount", "-o", "direct", a, b, c, d, self.dir)
        self.start()
        time.sleep(self.seconds)
        self.report("before")
        self.timed("slot add", "slot", "add", "--size", SLOT, e, self.dir)
        time.sleep(self.seconds)
        self.report("a slot was added")
        self.timed("slot remove", "slot", "remove", b, self.dir)
        self.report("the last one was emptied")
        self.stop()
        self.timed("umount", "umount", self.dir)
        pool = [a, e, c, d]
        self.report("unmounted", *pool)
        others = [path for number, path in ((2, c), (3, d), (1, e)) if number not in self.needed(pool)]
        if not others:
            raise SystemExit("each slot has something that all the others need: once more, please")
        lost = others[0]
        self.timed("mount", "mount", "-o", "direct", *pool, self.dir)
        self.start()
        time.sleep(self.seconds)
        self.events.append((time.time(), f"{os.path.basename(lost)} cut short", 0))
        os.truncate(lost, 1 << 20)
        time.sleep(self.seconds)
        self.left_out = self.report("a slot was lost")["left_out"]
        self.stop()
        # With the slot that has failed the pool is not closed clean, which is told.
        self.unmounted = self.timed("umount", "umount", self.dir, codes=(1,)).stderr.strip()
        return self.after(pool, lost, new)

    def after(self, pool, lost, new):
        check = json.loads(self.novale("check", "--json", *pool, codes=(0, 1, 2, 3, 4)).stdout)
        named = {m[1] for m in (re.match(r"(/\S+) \(inode", error["what"]) for error in check["errors"]) if m}
        self.novale("mount", "-o", "ro", *pool, self.dir)
        read_only = self.judge(named)
        self.novale("umount", self.dir)
        others = [slot for slot in pool if slot != lost]
        self.timed("slot replace --lost", "slot", "replace", "--lost", "--json", "--size", SLOT, lost, new, *others)
        again = self.novale("check", *others, new).stdout.strip().splitlines()[-1]
        self.novale("mount", *others, new, self.dir)
        replaced = self.judge(None)
        replaced["wrong"] += sorted(set(read_only["whole"]) - set(replaced["whole"]))
        self.novale("umount", self.dir)
        found = {"check_errors": len(check["errors"]), "read_only": read_only, "then": again, "replaced": replaced}
        return {"left_out": self.left_out, "umount": self.unmounted, **found}

    def take_down(self):
        for writer in self.writers:
            writer.kill()
        if os.path.ismount(self.dir):
            subprocess.run([NOVALE, "umount", self.dir], check=False)
        shutil.rmtree(self.pool)
        shutil.rmtree(self.work)


# --- tables and the figure -------------------------------------------------------------------------


def by_second(run):
    seconds = {}
    for way in ("mount", "direct"):
        with open(os.path.join(run.work, f"{way}.served")) as file:
            for line in file:
                at, ops, size, eio = json.loads(line)
                row = seconds.setdefault(at - int(run.begun), {})
                has = row.setdefault(way, {"ops": 0, "bytes": 0, "eio": 0})
                for key, more in (("ops", ops), ("bytes", size), ("eio", eio)):
                    has[key] += more
    for at, what, took in run.events:
        row = seconds.setdefault(int(at) - int(run.begun), {})
        row.setdefault("events", []).append(what + (f" ({took:.2f} s)" if took else ""))
    return [{"second": second, **seconds[second]} for second in sorted(seconds)]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |")
    print()


def show(told):
    rows = []
    for row in told["seconds"]:
        cells = [row["second"], "; ".join(row.get("events", []))]
        for way in ("mount", "direct"):
            has = row.get(way, {"ops": 0, "bytes": 0, "eio": 0})
            cells += [f"{has['ops']:,}", f"{has['bytes'] / 1e6:.1f}", has["eio"] or None]
        rows.append(cells)
    table(["s", "event", "mount: operations", "MB", "EIO", "direct: operations", "MB", "EIO"], rows)
    keys = ["when", "slot", "file", "state", "used_kb", "pages_moved"]
    table(["when", "slot", "file", "state", "KB used", "pages moved"], [[r[key] for key in keys] for r in told["reported"]])
    print("umount:", told["umount"])
    print("slot status:", "; ".join(told["left_out"]).replace(told["folder"] + "/", ""))
    for when in ("read_only", "replaced"):
        print(f"{when}:", {key: len(value) if isinstance(value, list) else value for key, value in told[when].items()})
    print(f"check: {told['check_errors']} errors; after slot replace --lost: {told['then']}")


def figure(told, path):
    """Bars of operations by the second, those that failed in red above them."""
    rows, left, low, high = told["seconds"], 60, 330, 290
    last = max(row["second"] for row in rows)
    of = lambda row, way, key: row.get(way, {}).get(key, 0)
    most = max(sum(of(row, way, key) for way in ("mount", "direct") for key in ("ops", "eio")) for row in rows) or 1
    width = 1000 / (last + 1)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="1100" height="400" font-family="sans-serif" font-size="12">',
        '<rect width="1100" height="400" fill="white"/>',
        f'<text x="{left}" y="16" font-size="15">Operations a second while slots come, go and fail</text>',
        f'<text x="4" y="{low - high + 4}">{most:,}</text><text x="44" y="{low}">0</text>',
    ]
    for row in rows:
        y = low
        for way, key, colour in (("direct", "ops", "#264653"), ("mount", "ops", "#e9c46a"), ("mount", "eio", "#d00"), ("direct", "eio", "#d00")):
            height = of(row, way, key) * high / most
            y -= height
            parts.append(f'<rect x="{left + row["second"] * width:.1f}" y="{y:.1f}" width="{width * 0.9:.1f}" height="{height:.1f}" fill="{colour}"/>')
        for turn, event in enumerate(row.get("events", [])):
            parts.append(f'<text x="{left + row["second"] * width:.1f}" y="{low + 16 + 14 * (turn + row["second"] % 2 * 2)}">{event}</text>')
    legend = (("direct", "#264653"), ("mount", "#e9c46a"), ("EIO", "#d00"))
    for turn, (name, colour) in enumerate(legend):
        parts.append(f'<rect x="{500 + turn * 90}" y="6" width="12" height="12" fill="{colour}"/><text x="{516 + turn * 90}" y="16">{name}</text>')
    with open(path, "w") as file:
        file.write("\n".join([*parts, "</svg>", ""]))


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=5, help="between two events")
    words.add_argument("--json", action="store_true")
    words.add_argument("--svg", metavar="FILE")
    words.add_argument("--writer", nargs=3, help=argparse.SUPPRESS)
    args = words.parse_args()
    if args.writer:
        return Writer(*args.writer).run()
    run = Run(args.seconds)
    try:
        told = run.run()
        told = {"folder": run.pool, "seconds": by_second(run), "reported": run.reported, **told}
    finally:
        run.take_down()
    print(json.dumps(told, indent=1)) if args.json else show(told)
    if args.svg:
        figure(told, args.svg)
    bad = [path for when in ("read_only", "replaced") for key in ("wrong", "lost, not named") for path in told[when][key]]
    sys.exit(f"acknowledged and not there: {bad}" if bad else 0)


if __name__ == "__main__":
    main()
