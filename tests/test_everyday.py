"""Compiled functions where plain ones go: pickles, worker processes, inspect, help, doctest, mock."""

from __future__ import annotations

import asyncio
import doctest
import functools
import inspect
import os
import pickle
import pydoc
import subprocess
import sys
import typing
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import cloudpickle
import numpy as np
import pytest

import dynagraph as dg

X = np.arange(4.0)


# -- what inspect and its like see --------------------------------------------------------------------------------------------
def of_arrays(x: np.ndarray, k: float = 2.0, *rest: int, shift: float = 0.0, **more: Any) -> np.ndarray:
    """Scales.

    >>> of_arrays(np.ones(2))
    array([2., 2.])
    """
    return x * k + shift


async def coroutine(x: Any) -> Any:
    return x + 1


def generator(x: Any) -> Any:
    yield x + 1


async def async_generator(x: Any) -> Any:
    yield x + 1


def outer() -> Any:
    k = 2.0

    def inner(x: Any) -> Any:
        return x * k

    return inner


PLAIN = [of_arrays, coroutine, generator, async_generator, outer(), lambda x: x]
LOOKS = [
    inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.isroutine, inspect.isclass,
    inspect.ismethod, inspect.isbuiltin, inspect.isawaitable, inspect.isdatadescriptor, inspect.ismodule, inspect.iscode,
    inspect.signature, inspect.getdoc, inspect.getmodule, inspect.getsource, inspect.getsourcelines, inspect.unwrap, callable,
    inspect.getclosurevars, inspect.getcomments, inspect.getfile, typing.get_type_hints, inspect.get_annotations,
    lambda f: f.__code__, lambda f: f.__globals__, lambda f: f.__closure__, lambda f: f.__defaults__, lambda f: f.__kwdefaults__,
    lambda f: f.__annotations__, lambda f: f.__module__, lambda f: f.__qualname__,
]  # fmt: skip
OF_UNWRAPPED = (inspect.getclosurevars, inspect.getcomments, inspect.getfile)  # ask isinstance(f, FunctionType), and do not unwrap


@pytest.mark.parametrize("plain", PLAIN, ids=lambda f: f.__name__)
def test_it_looks_like_the_plain_function(plain: Any) -> None:
    compiled = dg.compile(plain)
    for look in LOOKS:
        if look in OF_UNWRAPPED:
            assert look(inspect.unwrap(compiled)) == look(plain)
            continue
        assert look(compiled) == look(plain), look
    made = functools.wraps(compiled)(lambda *args: None)
    wanted = functools.wraps(plain)(lambda *args: None)
    for name in functools.WRAPPER_ASSIGNMENTS:
        assert getattr(made, name) == getattr(wanted, name)
    assert made.__wrapped__ is compiled and inspect.unwrap(made) is plain
    title, text = (pydoc.plain(pydoc.render_doc(f)).split("\n", 1) for f in (compiled, plain))
    assert title[1] == text[1]


def test_methods_look_like_methods() -> None:
    class Model:
        def plain(self, x: Any) -> Any:
            return x

        compiled = dg.compile(plain)
        static = dg.compile(staticmethod(lambda x: x))

    assert inspect.ismethod(Model().compiled) and inspect.isroutine(Model().compiled)
    assert inspect.signature(Model().compiled) == inspect.signature(Model().plain)
    assert inspect.signature(Model.compiled) == inspect.signature(Model.plain)
    assert inspect.getsource(Model().compiled) == inspect.getsource(Model().plain)


def test_changes_reach_the_plain_function() -> None:
    def f(x: Any, k: float = 2.0) -> Any:
        return x * k

    compiled = dg.compile(f)
    np.testing.assert_array_equal(compiled(X), X * 2)
    compiled.__defaults__ = (3.0,)
    assert f.__defaults__ == (3.0,)
    np.testing.assert_array_equal(compiled(X), X * 3)
    compiled.__code__ = (lambda x, k: x + k).__code__
    np.testing.assert_array_equal(compiled(X), X + 3)


def test_coroutines_run() -> None:
    compiled = dg.compile(coroutine)
    assert asyncio.iscoroutinefunction(compiled) if sys.version_info < (3, 14) else True
    np.testing.assert_array_equal(asyncio.run(compiled(X)), X + 1)
    assert len(list(dg.compile(generator)(X))) == 1


def test_doctests_are_found_and_run() -> None:
    module = ModuleType("documented")
    module.np, module.of_arrays = np, dg.compile(of_arrays)  # type: ignore[attr-defined]
    module.of_arrays.__module__ = "documented"  # type: ignore[attr-defined]
    found = [t for t in doctest.DocTestFinder().find(module) if t.examples]
    assert [t.name for t in found] == ["documented.of_arrays"]
    assert doctest.DocTestRunner().run(found[0]).failed == 0


def test_mocks_stand_in_for_it() -> None:
    holder = SimpleNamespace(f=dg.compile(of_arrays))
    with mock.patch.object(holder, "f", autospec=True) as replaced:
        holder.f(X, 3.0)
        replaced.assert_called_once_with(X, 3.0)
    np.testing.assert_array_equal(holder.f(X), X * 2)


# -- pickles ------------------------------------------------------------------------------------------------------------------
@dg.compile
def importable(x: Any) -> Any:
    return x * 2


def decorated_under_another_name(x: Any) -> Any:
    return x - 1


another_name = dg.compile(decorated_under_another_name, fullgraph=True, dynamic=True)


def test_importable_ones_go_by_reference() -> None:
    for dumps in (pickle.dumps, cloudpickle.dumps):
        assert pickle.loads(dumps(importable)) is importable
    made = pickle.loads(pickle.dumps(another_name))  # the plain function goes by reference
    assert made.__wrapped__ is decorated_under_another_name
    assert made.decorated.options.fullgraph and made.decorated.options.dynamic
    np.testing.assert_array_equal(made(X), X - 1)


def test_what_pickle_cannot_find_it_says_of_the_plain_function() -> None:
    for function in (outer(), lambda x: x):
        with pytest.raises((pickle.PicklingError, AttributeError)) as plain:
            pickle.dumps(function)
        with pytest.raises(plain.type) as compiled:
            pickle.dumps(dg.compile(function))
        assert str(compiled.value) == str(plain.value)


def loss(x: Any) -> Any:
    return (x**2).sum()


@pytest.mark.parametrize("function", [outer(), lambda x: x + 1, dg.grad(loss), dg.value_and_grad(lambda x: x.sum())])
def test_cloudpickle_takes_them_by_value(function: Any) -> None:
    compiled = dg.compile(function, dynamic=False)
    made = pickle.loads(cloudpickle.dumps(compiled))
    assert made is not compiled and made.decorated.options.dynamic is False
    np.testing.assert_array_equal(made(X)[-1], function(X)[-1])


def test_a_function_that_comes_again_is_compiled_once() -> None:
    compiled = dg.compile(lambda x: np.sin(x) * 2)
    pickled = cloudpickle.dumps(compiled)
    first, second = pickle.loads(pickled), pickle.loads(pickled)
    assert first is second
    factor = 2.0

    def of_closure(x: Any) -> Any:
        return x * factor

    assert pickle.loads(cloudpickle.dumps(dg.compile(of_closure)))(X)[1] == 2.0
    factor = 3.0
    assert pickle.loads(cloudpickle.dumps(dg.compile(of_closure)))(X)[1] == 3.0


def twice(x: Any) -> Any:
    return 2 * x


def counting() -> Any:
    calls = 0

    def count(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x + calls

    return count


def test_a_closure_that_comes_again_is_compiled_once() -> None:
    """With the functions that it calls, which come anew with each task."""
    factor, sizes = 2.0, (1, 2)
    halves = FunctionType(twice.__code__, {"__builtins__": __builtins__, "__name__": "gone"}, "halves")

    def step(x: Any) -> Any:
        return sum([halves(x) * factor + size for size in sizes])

    pickled = cloudpickle.dumps(dg.compile(step))
    first, second = pickle.loads(pickled), pickle.loads(pickled)
    assert first is second
    np.testing.assert_array_equal(first(X), step(X))
    place = step.__code__.co_freevars.index("factor")
    first.__wrapped__.__closure__[place].cell_contents = 5.0
    third = pickle.loads(pickled)
    assert third is not first
    np.testing.assert_array_equal(third(X), step(X))


def test_closures_with_a_state_stay_apart() -> None:
    pickled = cloudpickle.dumps(dg.compile(counting()))
    for _ in range(2):
        made = pickle.loads(pickled)
        assert made(X)[0] == 1 and made(X)[0] == 2


def test_modules_that_cloudpickle_takes_by_value() -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        assert b"pickling" in cloudpickle.dumps(importable)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


WORKERS = """
import functools, multiprocessing, pickle, sys
import cloudpickle, joblib, numpy as np
import dynagraph as dg

K = 3.0

@dg.compile
def of_main(x):
    return x * K

def nested(a):
    @dg.compile
    def inner(x):
        return x * a
    return inner

def loss(x):
    return (x**2).sum()

class Model:
    def __init__(self):
        self.w = 2.0

    @dg.compile
    def step(self, x):
        return x * self.w

    @dg.compile
    def __call__(self, x):
        return x - self.w

@dg.compile
def recursive(x, n=3):
    return x if n == 0 else recursive(x + 1, n - 1)

def plain(x):
    return of_main(x) + 1

X = np.arange(4.0)
FUNCTIONS = [of_main, nested(2.0), dg.compile(lambda x: x + 1), dg.grad(loss), dg.grad(dg.compile(loss)), Model().step, Model(),
             functools.partial(of_main), functools.partial(dg.compile(loss)), recursive, plain]

if __name__ == "__main__":
    assert pickle.loads(pickle.dumps(of_main)) is of_main
    wanted = [f(X) for f in FUNCTIONS]
    joined = joblib.Parallel(n_jobs=2)(joblib.delayed(f)(X) for f in FUNCTIONS)
    for method in sys.argv[1:]:
        with multiprocessing.get_context(method).Pool(1) as pool:
            for f in (of_main, Model().step, functools.partial(of_main), recursive, plain):
                joined.append(pool.apply(f, (X,)))
                wanted.append(f(X))
    for got, expected in zip(joined, wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
    print("agreed", len(wanted))
"""


def test_worker_processes(tmp_path: Path) -> None:
    (tmp_path / "workers.py").write_text(WORKERS)
    command = [sys.executable, "-W", "error", "workers.py", "spawn", "forkserver"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.stdout == "agreed 21\n", done.stderr


def test_warnings_name_the_line_of_the_call() -> None:
    compiled = dg.compile(lambda x, text: x + len(text))
    with dg.config.override(entry_limit=2), pytest.warns(dg.RecompileLimitWarning) as seen:
        for k in range(4):
            compiled(np.arange(3.0), "text" * k)
    assert [w.filename for w in seen] == [__file__]
