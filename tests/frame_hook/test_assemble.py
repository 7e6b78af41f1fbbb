"""Code objects that call a callable instead."""

from __future__ import annotations

import inspect
import timeit
import types
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynagraph.frontend.bytecode.assemble import call_instead
from tests.frame_hook.watching import watch_one


@st.composite
def signatures(draw: st.DrawFn) -> str:
    posonly, plain, kwonly = (draw(st.integers(0, 3)) for _ in range(3))
    names = [f"p{k}" for k in range(posonly)] + (["/"] if posonly else []) + [f"q{k}" for k in range(plain)]
    if draw(st.booleans()):
        names.append("*rest")
    elif kwonly:
        names.append("*")
    names += [f"k{k}" for k in range(kwonly)]
    return ", ".join(names + ["**more"] * draw(st.booleans()))


@given(signatures(), st.integers(0, 2), st.booleans())
@settings(max_examples=150, deadline=None)
def test_same_signature(signature: str, n_free: int, cells: bool) -> None:
    free = [f"z{k}" for k in range(n_free)]
    parameters = [n.strip("*") for n in signature.split(", ") if n.strip("*/")]
    uses = "".join(f", {name}" for name in free + parameters)
    body = f"return (lambda: (0{uses}))()" if cells else f"return (0{uses})"
    namespace: dict = {}
    exec(f"def outer({', '.join(free)}):\n def f({signature}):\n  {body}\n return f", namespace)
    f = namespace["outer"](*range(n_free))
    code = call_instead(f.__code__, lambda values: values)
    same = (
        "co_argcount",
        "co_posonlyargcount",
        "co_kwonlyargcount",
        "co_freevars",
        "co_name",
        "co_qualname",
        "co_filename",
        "co_firstlineno",
    )
    assert [getattr(code, name) for name in same] == [getattr(f.__code__, name) for name in same]
    n = len(inspect.signature(f).parameters)
    assert code.co_varnames == f.__code__.co_varnames[:n] and code.co_cellvars == ()
    g = types.FunctionType(code, {}, closure=f.__closure__)
    assert inspect.signature(g) == inspect.signature(f)
    bound = inspect.signature(f).bind
    args = list(range(f.__code__.co_argcount))
    keywords = {f.__code__.co_varnames[f.__code__.co_argcount + k]: -k for k in range(f.__code__.co_kwonlyargcount)}
    expected = dict(bound(*args, **keywords).arguments)
    answer = watch_one(f, lambda function, old, values: code, *args, **keywords)
    names = code.co_varnames
    assert {k: v for k, v in zip(names, answer) if v not in ((), {})} == {k: v for k, v in expected.items() if v not in ((), {})}


def test_many_parameters() -> None:
    names = ", ".join(f"p{k}" for k in range(60))
    namespace: dict = {}
    exec(f"def f({names}): return p3", namespace)
    f = namespace["f"]
    assert watch_one(f, lambda fn, c, v: call_instead(c, sum), *range(60)) == sum(range(60))


def test_unhashable_callables() -> None:
    class Callable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, values):
            return values

        def __eq__(self, other):
            raise AssertionError("compared")

    def f(a):
        return a

    assert watch_one(f, lambda fn, c, v: call_instead(c, Callable()), 1) == (1,)


def test_it_is_fast_and_silent() -> None:
    def f(a, b, *args, k=2, **kwargs):
        return a

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call_instead((lambda p, q, r, s, t, u: f).__code__, len)
    assert min(timeit.repeat(lambda: call_instead(f.__code__, len), number=100, repeat=5)) / 100 < 3e-4


@pytest.mark.parametrize("lines", [1, 5])
def test_all_instructions_are_on_the_first_line(lines: int) -> None:
    def f(a, b, c, d, e):
        return a

    code = call_instead(f.__code__, len)
    assert {line for _, _, line in code.co_lines()} == {f.__code__.co_firstlineno}
    assert all(p[2] is None for p in code.co_positions())
