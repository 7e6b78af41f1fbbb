"""The table of doors itself: nothing but `Unsupported` comes out, whatever goes in; parameters have NumPy's names."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest

from dynagraph.doors.numpy import Builder, Unsupported, lookup, method
from dynagraph.doors.numpy.table import functions, methods, operators
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta

from .harness import REASONS

DOORS = {
    **{f"np.{door.name}": door for _, door in functions()},
    **{f"ndarray.{name}": door for name, door in methods().items()},
    **{f"operator {symbol}": door for symbol, door in operators().items()},
}
ODD = (
    None,
    "text",
    -1,
    2.5,
    float("nan"),
    10**30,
    True,
    (),
    (1, -1),
    [0, "a"],
    {"a": 1},
    object(),
    1j,
    slice(None),
    ...,
)
QUESTIONS = {
    "np.dtype",
    "np.finfo",
    "np.iinfo",
    "np.issubdtype",
    "np.promote_types",
    "np.min_scalar_type",
    "np.broadcast_shapes",
}


@pytest.mark.parametrize("name", sorted(DOORS.keys() - QUESTIONS))
def test_odd_arguments_are_taken_or_declined(name):
    b = Builder(Graph())
    x = b.graph.placeholder("x", Meta(dtypes.float64, (2, 3)))
    is_function = name.startswith("np.")
    first = (x, *ODD) if is_function else (x,)  # methods and operators are asked for arrays
    for arguments in itertools.chain([()] * is_function, itertools.product(first), itertools.product(first, (x, *ODD))):
        try:
            DOORS[name](b, *arguments)
        except Unsupported as refusal:
            assert refusal.reason in REASONS
            assert refusal.detail
    with pytest.raises(Unsupported):
        DOORS[name](b, x, no_such_argument=1)


SAME_NAMES = [f for f, _ in functions() if inspect.isfunction(f) or type(f).__name__ == "_ArrayFunctionDispatcher"]


@pytest.mark.parametrize("function", SAME_NAMES, ids=lambda f: f.__name__)
def test_parameters_are_numpys(function):
    """Positions and names; extra keywords of NumPy's are declined, never ignored."""
    given = list(lookup(function).signature.parameters.values())[1:]
    try:
        wanted = list(inspect.signature(function).parameters.values())
    except ValueError:
        pytest.skip("this NumPy does not tell the signature of its C functions")
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in given):
        return
    for ours, theirs in zip(given, wanted, strict=False):
        assert ours.kind == theirs.kind or function is np.arange
        assert ours.name == theirs.name or ours.kind == ours.POSITIONAL_ONLY or function is np.arange


def test_doors_are_found_by_identity():
    assert lookup(np.add) is lookup(np.add)
    assert lookup(np.add.reduce).name == "add.reduce"
    assert lookup(np.matmul.reduce) is None
    assert lookup(lambda x: x) is None
    assert method("no_such_method") is None


def test_coverage():
    """The promise of the docs: 150 functions or more."""
    assert len(functions()) >= 150
    assert len(methods()) >= 40
    assert DOORS.keys() >= QUESTIONS
