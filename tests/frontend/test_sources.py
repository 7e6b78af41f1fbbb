"""What stands at a source is read without code of the user's: another object than was captured may stand at its base."""

from __future__ import annotations

from typing import Any

import pytest

import dynagraph as dg
from dynagraph.frontend.guards.sources import Attribute, Item, Key, Local


class Computes:
    @property
    def part(self) -> Any:
        raise AssertionError("it was run")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("it was run")

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("it was run")

    def method(self) -> None: ...


@pytest.mark.parametrize(
    "source, error",
    [
        (Attribute(Local(0, "x"), "part"), AttributeError),
        (Attribute(Local(0, "x"), "missing"), AttributeError),
        (Item(Local(0, "x"), 0), TypeError),
        (Key(Local(0, "x"), "a"), TypeError),
    ],
    ids=str,
)
def test_nothing_is_run(source: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        source.now((Computes(),), ())


def test_what_is_there_is_found() -> None:
    made = Computes()
    made.__dict__["own"] = [1, {"a": 2}]
    own = Attribute(Local(0, "x"), "own")
    assert Key(Item(own, 1), "a").now((made,), ()) == 2
    made.__dict__["compiled"] = dg.compile(lambda x: x)  # with a __get__, which an instance's own attribute is not asked for
    assert Attribute(Local(0, "x"), "compiled").now((made,), ()) is made.compiled
    assert Attribute(Local(0, "x"), "method").now((made,), ()) == made.method
    assert Attribute(Local(0, "x"), "__name__").now((Computes.method,), ()) == "method"
