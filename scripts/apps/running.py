"""Running programs, and what they take of a CPU."""

import resource
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


def timed(runner, command, count, **options):
    """How many of `count` a second a command does, and us of a CPU for each."""
    begun, before = time.monotonic(), used()
    run(runner, command, **options)
    took, cpu = time.monotonic() - begun, used() - before
    return count / took, cpu / count * 1e6
