"""What `make test` takes of tests with many cases is the same each time, is spread, and has what it must."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import sampling


class Case:
    """What `sampling.choose` asks of an item."""

    def __init__(self, test: str, one_in: int | None, **params: Any):
        self.nodeid = f"{test}[{'-'.join(map(str, params.values()))}]"
        self.callspec = SimpleNamespace(params=params)
        self.one_in = one_in

    def get_closest_marker(self, name: str) -> Any:
        return SimpleNamespace(args=(self.one_in,)) if name == "sampled" and self.one_in is not None else None


def chosen(cases: list[Case], *asked: str) -> list[Case]:
    kept, left_out = sampling.choose(cases, asked)  # type: ignore[arg-type]
    assert len(kept) + len(left_out) == len(cases)
    return kept  # type: ignore[return-value]


NAMES = [f"{family}.program{k}" for family in ("few", "some", "many") for k in range({"few": 1, "some": 9, "many": 50}[family])]


def test_each_family_has_a_case() -> None:
    cases = [Case("test_a", 10, name=name) for name in NAMES]
    kept = chosen(cases)
    assert len(kept) == 6 and {case.callspec.params["name"].partition(".")[0] for case in kept} == {"few", "some", "many"}


def test_each_value_of_small_parameters_has_a_case() -> None:
    dtypes, sides = ["f4", "f8", "i4", "i8"], ["left", "right"]
    numbers = [str(n) for n in range(15)]
    kept = chosen([Case("test_a", 12, dtype=dtype, side=side, n=n) for dtype in dtypes for side in sides for n in numbers])
    assert len(kept) == 10
    for name, values in (("dtype", dtypes), ("side", sides)):
        assert {case.callspec.params[name] for case in kept} == set(values)


def test_the_choice_does_not_depend_on_the_order_or_on_other_tests() -> None:
    cases = [Case("test_a", 10, name=name) for name in NAMES]
    others = [Case("test_b", 3, name=name) for name in NAMES]
    kept = {case.nodeid for case in chosen([*others, *cases[::-1]])}
    assert {case.nodeid for case in chosen(cases)} == {name for name in kept if name.startswith("test_a")}


def test_what_is_not_sampled_or_asked_for_runs_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, sampled = ([Case(test, n, name=name) for name in NAMES] for test, n in (("test_a", None), ("test_b", 10)))
    assert chosen(whole) == whole
    assert chosen(sampled, "test_b") == sampled
    monkeypatch.setattr(sampling, "PROOFS", {sampled[-1].nodeid})
    assert sampled[-1] in chosen(sampled)


def test_parts_are_all_cases_that_are_sampled() -> None:
    whole, sampled = ([Case(test, n, name=name) for name in NAMES] for test, n in (("test_a", None), ("test_b", 10)))
    items: Any = [*whole, *sampled]
    kept = [sampling.in_part(items, *sampling.part_of(f"{day}/4"))[0] for day in (1, 2, 3, 4, 5)]
    assert sorted(case.nodeid for part in kept[:4] for case in part) == sorted(case.nodeid for case in sampled)
    assert kept[4] == kept[0] != []
    for wrong in ("3", "3/0", "x/4", "-1/4"):
        with pytest.raises(pytest.UsageError, match=f"--part {wrong}: expected a number and how many parts there are"):
            sampling.part_of(wrong)
