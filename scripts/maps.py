#!/usr/bin/env python3
"""What mapping a file costs in a folder, wall-clock microseconds a turn, one line: a file of 1 MB mapped
and unmapped while it is open; another one opened, mapped, unmapped and closed; 64 B stored in a mapping and msync of
their page. `maps.py DIR`, by turns under `novale run --map=dax`, `novale run --map=kernel` and without."""

import mmap
import os
import sys
import time

SIZE = 1 << 20
TURNS = 1000


def turns(what):
    start = time.perf_counter_ns()
    for turn in range(TURNS):
        what(turn)
    return (time.perf_counter_ns() - start) / TURNS / 1000


paths = [os.path.join(sys.argv[1], name) for name in ("mapped", "opened")]
for path in paths:
    with open(path, "wb") as file:
        file.write(bytes(SIZE))
fd = os.open(paths[0], os.O_RDWR)


def open_and_map(_):
    own = os.open(paths[1], os.O_RDWR)
    mmap.mmap(own, SIZE).close()
    os.close(own)


mapped = turns(lambda _: mmap.mmap(fd, SIZE).close())
opened = turns(open_and_map)
shown = mmap.mmap(fd, SIZE)


def store(turn):
    at = turn * 4096 % SIZE
    shown[at : at + 64] = b"x" * 64
    shown.flush(at, 4096)


stored = turns(store)
print(f"map and unmap {mapped:.2f}, with open and close {opened:.2f}, store and msync {stored:.2f}")
for path in paths:
    os.unlink(path)
