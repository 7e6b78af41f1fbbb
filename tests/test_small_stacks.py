"""Threads of little C stack: recursion through compiled functions ends as Python's does, and never in a crash."""

from __future__ import annotations

import subprocess
import sys

import pytest

SOURCE = """
import sys, threading
import numpy as np, dynagraph as dg
dg.config.compile_budget = None

def through_a_part(x, n):
    return broken(x, n - 1) if n else x

@dg.compile
def broken(x, n):
    y = x * 2
    dg.graph_break()
    return through_a_part(y * 0.5, n) + 1

@dg.compile
def direct(x, n):
    if x.sum() < 0 or n == 0:
        return x
    return np.asarray(sorted([n], key=lambda k: direct(x, k - 1)[0])[0]) * 0 + x

def ends(f, x, n):
    try:
        return float(f(x, n)[0])
    except RecursionError:
        return "RecursionError"

results = []
def work():
    x = np.ones(3)
    for f in (broken, direct):
        for n in (3, 20, 10**6, 20):
            results.append(ends(f, x, n))

threading.stack_size(int(sys.argv[1]) * 1024)
for _ in range(2):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
expected = [5.0, 22.0, "RecursionError", 22.0, 1.0, 1.0, "RecursionError", 1.0]
assert results == 2 * expected, results
assert broken.stats.fallbacks == direct.stats.fallbacks == 0
print("ended")
"""


@pytest.mark.parametrize("kilobytes", [192, 256, 1024])
def test_recursion_on_a_small_stack(kilobytes: int) -> None:
    ran = subprocess.run([sys.executable, "-c", SOURCE, str(kilobytes)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and ran.stdout == "ended\n", (ran.returncode, ran.stderr)
