"""Random programs do compiled what they do plainly.  `programs.py` says how a failing seed is looked at by itself."""

from __future__ import annotations

import random

import pytest

from tests import sampling
from tests.behaviours.programs import Reached, difference, from_seed, outcomes, reduced, report
from tests.statements import every

PROGRAMS, CHUNK = 2000, 50
SHOWN = 2  # failing programs that a chunk makes smaller and shows


@pytest.mark.sampled(20)
@pytest.mark.parametrize("start", range(0, PROGRAMS, CHUNK))
def test_programs_do_compiled_what_they_do_plainly(start: int) -> None:
    failed = [seed for seed in range(start, start + CHUNK) if difference(from_seed(seed)) is not None]
    if failed:
        shown = "\n\n".join(report(from_seed(seed), shrink=10.0) for seed in failed[:SHOWN])
        pytest.fail(f"{len(failed)} of {CHUNK} differ, seeds {failed}\n\n{shown}", pytrace=False)


@pytest.mark.fuzz
def test_many_programs_from_random_seeds() -> None:
    first = random.SystemRandom().randrange(PROGRAMS, 1 << 40)
    failed, shown, counts = [], [], Reached()
    for seed in range(first, first + sampling.programs):
        if difference(from_seed(seed), counts) is not None:
            failed.append(seed)
            if len(shown) < 5:
                shown.append(report(from_seed(seed)))
                print(shown[-1], flush=True)
    print(f"{sampling.programs} programs from seed {first}: {counts}")
    if failed:
        pytest.fail(f"{len(failed)} of {sampling.programs} differ, seeds {failed[:100]}\n\n" + "\n\n".join(shown), pytrace=False)


def test_plain_runs_repeat_and_seldom_raise() -> None:
    counts = Reached()
    for seed in range(200):
        assert difference(from_seed(seed), counts, plain_only=True) is None, seed
    assert 0.02 < counts.errors / counts.calls < 0.2, counts


def test_programs_are_made_smaller() -> None:
    def writes(program) -> bool:
        return "log.append" in program.source and outcomes(program, program.source, lambda f: f) is not None

    program = next(p for p in map(from_seed, range(1000)) if len(p.body) > 6 and writes(p))
    small = reduced(program, writes)
    assert sum(1 for _ in every(small.body)) <= 3, small.source
    assert "log.append" in small.source
