#!/usr/bin/env python3
"""How many transactions of one put each LMDB commits a second in a folder, synced: one number.
`lmdb_puts.py DIR COUNT`, by turns on a tmpfs, a mount, and under `novale run --map=dax`; needs the package lmdb."""

import os
import shutil
import sys
import time

import lmdb

folder, count = os.path.join(sys.argv[1], "lmdb"), int(sys.argv[2])
shutil.rmtree(folder, ignore_errors=True)
env = lmdb.open(folder, map_size=1 << 30)
start = time.perf_counter()
for number in range(count):
    with env.begin(write=True) as transaction:
        transaction.put(b"key%09d" % (number * 7919 % count), b"v" * 100)
rate = count / (time.perf_counter() - start)
with env.begin() as transaction:
    assert transaction.stat()["entries"] == count
env.close()
shutil.rmtree(folder)
print(f"{rate:.0f}")
