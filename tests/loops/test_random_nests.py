"""Random nests of loops do compiled what they do plainly, bit for bit.  `nests.py` says how one looks at a failing seed."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from tests import sampling
from tests.loops.nests import INTERCHANGED, Nest, Walk, difference

PROGRAMS, CHUNK = 400, 10


def failures(seeds: Iterable[int], used: list[int]) -> list[str]:
    found = [(seed, difference(Nest(seed), used)) for seed in seeds]
    return [f"seed {seed}: {text}\n{Nest(seed).source}" for seed, text in found if text is not None]


@pytest.mark.sampled(80)  # each program takes half a second, most of it in the C compiler
@pytest.mark.parametrize("start", range(0, PROGRAMS, CHUNK))
def test_nests_do_compiled_what_they_do_plainly(start: int) -> None:
    used = [0]
    failed = failures(sampling.some(range(start, start + CHUNK), 2, start), used)
    if failed:
        pytest.fail("\n\n".join(failed[:2]), pytrace=False)
    assert used[0] > 0, "none of these nests has lanes"


@pytest.mark.sampled(20)
@pytest.mark.parametrize("start", range(0, PROGRAMS // 2, CHUNK))
def test_nests_in_another_order_do_the_same(start: int) -> None:
    used = [0]
    found = [(seed, difference(Walk(seed), used, INTERCHANGED)) for seed in sampling.some(range(start, start + CHUNK), 2, start)]
    failed = [f"walk {seed}: {text}\n{Walk(seed).source}" for seed, text in found if text is not None]
    if failed:
        pytest.fail("\n\n".join(failed[:2]), pytrace=False)
    assert used[0] > 0, "none of these nests runs in another order"


def test_loops_that_stay_two() -> None:
    assert failures(range(312, 313), [0]) == []  # made one of them without an end


@pytest.mark.fuzz
def test_many_nests_from_random_seeds() -> None:
    first = random.SystemRandom().randrange(PROGRAMS, 1 << 40)
    failed = failures(range(first, first + sampling.programs // 4), [0])
    if failed:
        pytest.fail("\n\n".join(failed), pytrace=False)
