"""Which cases of a test with many parameters run in `make test`; `make test-all` (``--all-cases``) runs all of them.

    @pytest.mark.sampled(8)  # one case in eight; of a module's tests by `pytestmark`
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("ufunc", UFUNCS)
    def test_...

The choice depends on the cases' names alone, so it is the same in every run and on every machine.  Where cases have several
parameters, it has as many values of each as it can, and of each family; and it has everything that once found a defect: see
past_defects.py.  `make test-part` (``--part 3/30``) runs the other cases in turn, a thirtieth each day.
Loops within a test run over `some` of their values; tests that make their own cases make `examples` of them.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

from tests.past_defects import PROOFS

T = TypeVar("T")
LONG = ("fuzz", "soak")
all_cases = False  # --all-cases was given
part: tuple[int, int] | None = None  # --part was given: the third of thirty
programs = 1000  # that each fuzzer makes: --programs


def choose(items: Sequence[pytest.Item], asked: Iterable[str] = ()) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Those that run and those that are left out, in order; what the command line names (`asked`) runs."""
    always = {*PROOFS, *asked}
    sampled = [of_one_test for test, of_one_test in _sampled(items).items() if test not in always]
    left_out = {item for of_one_test in sampled for item in _left_out(of_one_test) if item.nodeid not in always}
    return [item for item in items if item not in left_out], [item for item in items if item in left_out]


def part_of(text: str) -> tuple[int, int]:
    """A part by its name: "3/30"; the days of a year count on."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and int(count)):
        raise pytest.UsageError(f"--part {text}: expected a number and how many parts there are, such as 3/30")
    return int(number) % int(count), int(count)


def in_part(items: Sequence[pytest.Item], number: int, count: int) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Of the cases that are sampled one part, and all others, in order; each case is in one of the parts."""
    cases = [item for of_one_test in _sampled(items).values() for item in of_one_test]
    kept = {item for item in cases if zlib.crc32(item.nodeid.encode()) % count == number}
    return [item for item in items if item in kept], [item for item in items if item not in kept]


def _sampled(items: Sequence[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """The cases that are sampled, by their tests."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and item.get_closest_marker("sampled") and not any(map(item.get_closest_marker, LONG)):
            cases[item.nodeid.partition("[")[0]].append(item)
    return cases


def _left_out(cases: list[pytest.Item]) -> set[pytest.Item]:
    marker = cases[0].get_closest_marker("sampled")
    assert marker is not None
    (one_in,) = marker.args
    size = -(-len(cases) // one_in)
    shuffled = sorted(cases, key=lambda item: zlib.crc32(item.nodeid.encode()))
    of_cases = {item: _values(item) for item in shuffled}
    number = Counter(name for name, _ in set().union(*of_cases.values()))
    for values in of_cases.values():  # of some parameters there are more than the sample has cases
        values -= {value for value in values if number[value[0]] > size}
    chosen: dict[pytest.Item, None] = {}
    seen: set[tuple[str, object]] = set()
    for wanted in (lambda values: values and not values & seen, lambda values: not values <= seen, lambda values: True):
        for item, values in of_cases.items():
            if len(chosen) < size and item not in chosen and wanted(values):
                chosen[item] = None
                seen |= values
    return set(cases) - set(chosen)


def _values(item: pytest.Item) -> set[tuple[str, object]]:
    """Of a case's parameters; a text with a dot is of a family besides: "physics.n_body"."""
    given = item.callspec.params.items()  # type: ignore[attr-defined]
    families = {(f"family of {name}", value.partition(".")[0]) for name, value in given if isinstance(value, str) and "." in value}
    return {(name, id(value)) for name, value in given} | families


def examples(count: int, one_in: int = 4) -> int:
    """How many cases a test by hypothesis makes: `count` with ``--all-cases``, one in `one_in` of them else."""
    return count if all_cases else -(-count // one_in)


def some(values: Iterable[T], one_in: int, of: object) -> list[T]:
    """One in `one_in` of what a test loops over, one at least; all of it with ``--all-cases``.

    Which ones depends on `of`, a parameter of the test: tests with other parameters take others, and together they take all.
    """
    every = list(values)
    first = 0 if all_cases or not every else zlib.crc32(str(of).encode()) % min(one_in, len(every))
    return every[first :: 1 if all_cases else one_in]
