"""Random loop programs do compiled what they do plainly, bit for bit.  `compare.py` says how one looks at a failing seed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import sampling
from tests.loops.compare import Counts, difference, from_seed, reduced, report, without_long_calls
from tests.loops.generate import PROFILES
from tests.statements import every

PROGRAMS, CHUNK = 2000, 10
SHOWN = 2  # failing programs that a chunk makes smaller and shows


@pytest.mark.sampled(100)  # each program takes half a second, most of it in the C compiler
@pytest.mark.parametrize("start", range(0, PROGRAMS, CHUNK))
def test_loops_do_compiled_what_they_do_plainly(start: int) -> None:
    programs = [without_long_calls(from_seed(seed)) for seed in range(start, start + CHUNK)]
    failed = [program for program in programs if difference(program) is not None]
    if failed:
        shown = "\n\n".join(report(program, shrink=10.0) for program in failed[:SHOWN])
        pytest.fail(f"{len(failed)} of {CHUNK} differ, seeds {[p.seed for p in failed]}\n\n{shown}", pytrace=False)


@pytest.mark.fuzz
def test_many_loops_from_random_seeds() -> None:
    """In processes of their own, one for each core: what crashes ends one of them."""
    first = random.SystemRandom().randrange(PROGRAMS, 1 << 40)
    starts = range(first, first + sampling.programs, 100)

    def check(start: int) -> str:
        end = min(start + 100, first + sampling.programs)
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.loops.compare", str(start), str(end)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        crashed = done.returncode not in (0, 1)
        print(done.stdout.splitlines()[-1] if not crashed else f"crash from seed {start}", flush=True)
        return "" if done.returncode == 0 else f"{done.stdout}\n{done.stderr[-3000:] if crashed else ''}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [text for text in pool.map(check, starts) if text]
    if found:
        pytest.fail("\n\n".join(found), pytrace=False)


@pytest.mark.parametrize("profile", PROFILES)
def test_plain_runs_repeat_end_and_mostly_return(profile: str) -> None:
    counts = Counts()
    for seed in range(sampling.examples(300)):
        program = from_seed(seed)
        if program.profile == profile:
            assert difference(program, counts, plain_only=True) is None, seed
    assert counts.slow <= 1, counts
    assert 0.05 < sum(counts.raised.values()) / counts.calls < 0.75, counts


def test_loops_are_made_smaller() -> None:
    program = next(p for p in map(from_seed, range(1000)) if "continue" in p.source and len(p.body) > 5)
    small = reduced(program, lambda p: "continue" in p.source and "for " in p.source)
    assert sum(1 for _ in every(small.body)) <= 3, small.source
