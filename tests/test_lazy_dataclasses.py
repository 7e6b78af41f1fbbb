"""Data classes whose methods are made late are those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import KW_ONLY, field
from typing import Any

import pytest

from dynagraph.lazy_dataclasses import lazy_dataclass

OPTIONS = [{"frozen": f, "eq": e, "repr": r} for f in (False, True) for e in (False, True) for r in (False, True)]


def family(decorate: Any) -> tuple[type, type, type]:
    class Empty:
        pass

    class Base:
        x: int
        y: list = field(default_factory=list)
        of_class = 3

    Base = decorate(Base)  # type: ignore[misc]

    class Inner(Base):
        z: str = "z"
        hidden: int = field(default=7, repr=False, compare=False)
        made: list = field(default_factory=list, init=False, compare=False)
        double: int = field(init=False)
        _: KW_ONLY
        k: int = 5

        def __post_init__(self) -> None:
            object.__setattr__(self, "double", 2 * self.x)

    return decorate(Empty), Base, decorate(Inner)


def outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except (TypeError, AttributeError) as error:
        return type(error), str(error).replace("lazy", "")


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(k for k, v in o.items() if v) or "plain")
def test_they_do_what_the_librarys_do(options: dict[str, bool]) -> None:
    seen = []
    for decorate in (dataclasses.dataclass(**options), lazy_dataclass(**options)):
        empty, base, inner = family(decorate)
        a, b = inner(1, [2], k=6), inner(1, [2], k=6)
        changed = dataclasses.replace(a, x=4)
        seen.append(
            [
                [(f.name, f.init, f.kw_only) for f in dataclasses.fields(inner)],
                vars(a), vars(changed), vars(base(3)), vars(empty()), base(3).y is base(3).y, inner.__match_args__, a.of_class,
                a == b, a == base(1, [2]), a == changed, a == 1, inner(1, hidden=8) == inner(1),
                repr(a) if options["repr"] else "", repr(empty()) if options["repr"] else "",
                outcome(inner), outcome(inner, 1, w=2), outcome(inner, 1, [], "z", 7, 5),
                outcome(setattr, a, "x", 9), outcome(setattr, a, "other", 9), outcome(delattr, a, "x"), vars(copy.copy(b)),
                inner.__hash__ is None, (hash(inner(1, ())) == hash(inner(1, ()))) if options["eq"] and options["frozen"] else None,
            ]
        )  # fmt: skip
    assert seen[0] == seen[1]


@lazy_dataclass(frozen=True)
class Pickled:
    x: int
    y: Any = None


@lazy_dataclass
class Own:
    """Keeps the methods that it has."""

    x: int

    def __init__(self) -> None:
        self.x = 1

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 5


def test_what_they_are_given() -> None:
    a = Pickled(1)
    assert pickle.loads(pickle.dumps(a)) == a and (a != Pickled(1)) is False
    assert Own().x == 1 and repr(Own()) == "own" and Own() == 3 and hash(Own()) == 5
    cycle: list[Any] = []
    cycle.append(Pickled(2, cycle))
    assert repr(cycle[0]) == "Pickled(x=2, y=[...])"


def test_init_is_made_when_it_is_first_called() -> None:
    @lazy_dataclass
    class Late:
        x: int

    class Sub(Late):
        pass

    first = Late.__init__
    assert Sub(3).x == 3 and Late.__init__ is not first and "__init__" not in vars(Sub)
    assert Late.__init__.__qualname__.endswith("Late.__init__")
