"""Runs programs in several folders in turn, and prints what each does a second: medians with spread,
and the median of each round's ratio to the first folder. On a busy machine programs wait for CPUs that
others have: so what an operation takes of a CPU in the program itself, the kernel's part included,
stands besides, in us; of a mount its daemon's part is not in it. Of a folder in a pool it says, too,
how many bytes its memory was given to store. Called by scripts/apps.sh.

measure.py stores|lazy ROUNDS SCALE table|json NOVALE NAME=FOLDER[=POOL[=COMMAND...]]...: programs of
stores.py or lazy.py, run by COMMAND where there is one.
"""

import json
import os
import shutil
import statistics
import sys

import lazy
import stores
from running import run


def measure(parts, runner, folder, scale, stored):
    """All rates in a folder, once; and what `stored` says each part added to, by the part's name."""
    rates, bytes_of = {}, {}
    for name, figures_of in parts(runner, folder, scale):
        before = stored()
        rates.update(figures_of())
        bytes_of[name] = stored() - before
    return rates, bytes_of


def stored_in(novale, pool):
    """A function that says how many bytes a pool's memory was given to store so far; 0 of no pool."""
    if not pool:
        return lambda: 0
    return lambda: json.loads(run([novale], ["stats", "--json", pool]))["bytes_stored"]


def main():
    parts = {"stores": stores, "lazy": lazy}[sys.argv[1]].parts
    rounds, scale, as_json, novale = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "json", sys.argv[5]
    sides = []
    for word in sys.argv[6:]:
        name, folder, pool, command = (word.split("=", 3) + ["", ""])[:4]
        sides.append((name, folder, stored_in(novale, pool), command.split()))
    results = {name: {} for name, _, _, _ in sides}
    bytes_of = {name: {} for name, _, _, _ in sides}
    for turn in range(rounds):
        for name, folder, stored, runner in sides:
            print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
            own = f"{folder}/apps-{turn}"
            os.mkdir(own)
            rates, added = measure(parts, runner, own, scale, stored)
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
