"""`dg.compile` as an object: names, binding, pickling, threads, switches, limits, failures of the compiler."""

from __future__ import annotations

import concurrent.futures
import copy
import functools
import inspect
import os
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import dynagraph as dg
from dynagraph import config
from dynagraph.driver import control


@dg.compile
def documented(x: np.ndarray, k: float = 2.0, *, shift: float = 0.0) -> np.ndarray:
    """Scales."""
    return x * k + shift


X = np.arange(4.0)


def test_it_looks_like_the_function():
    plain = documented.__wrapped__
    assert documented.__name__ == "documented" and documented.__doc__ == "Scales." and documented.__module__ == __name__
    assert inspect.signature(documented) == inspect.signature(plain)
    assert pickle.loads(pickle.dumps(documented)) is documented
    assert copy.copy(documented) is documented and copy.deepcopy(documented) is documented
    assert "documented" in repr(documented)


def test_keywords_and_defaults():
    np.testing.assert_array_equal(documented(X, shift=1.0), X * 2 + 1)
    np.testing.assert_array_equal(documented(k=3.0, x=X), X * 3)
    np.testing.assert_array_equal(functools.partial(documented, k=4.0)(X), X * 4)


class Model:
    def __init__(self, w: float) -> None:
        self.w = w

    @dg.compile
    def scale(self, x):
        return x * self.w

    @dg.compile
    @staticmethod
    def double(x):
        return x * 2

    @staticmethod
    @dg.compile
    def triple(x):
        return x * 3

    @classmethod
    @dg.compile
    def name_length(cls, x):
        return x + len(cls.__name__)


def test_methods():
    np.testing.assert_array_equal(Model(5.0).scale(X), X * 5)
    np.testing.assert_array_equal(Model(6.0).scale(X), X * 6)
    np.testing.assert_array_equal(Model(1.0).double(X), X * 2)
    np.testing.assert_array_equal(Model.triple(X), X * 3)
    np.testing.assert_array_equal(Model.name_length(X), X + 5)
    np.testing.assert_array_equal(dg.compile(Model(7.0).scale.__func__.__wrapped__)(Model(7.0), X), X * 7)


@pytest.mark.parametrize("thing", [3, "f", np.sum, Model, Model(1.0)])
def test_what_is_no_function_is_refused(thing):
    with pytest.raises(TypeError, match=r"^compile: expected a function written in Python, got"):
        dg.compile(thing)


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"mode": "warp"}, ValueError, "mode='warp': expected 'default'"),
        ({"fullgraph": 1}, TypeError, "fullgraph=1: expected True"),
        ({"dynamic": "yes"}, TypeError, "dynamic='yes'"),
        ({"backend": "gpu"}, dg.BackendError, "unknown backend 'gpu'; known ones are"),
        ({"backend": 3}, TypeError, "backend=3: expected a name or a callable"),
    ],
)
def test_bad_options_are_explained(options, error, text):
    with pytest.raises(error, match=text):
        dg.compile(**options)


def test_every_backend_gives_the_same():
    def user(graph, example_inputs):
        assert [e.shape for e in example_inputs] == [(4,)]
        return lambda x: (x * 2 + 1,)

    for backend in ("cpu", "c", "numpy", "reference", user):
        compiled = dg.compile(lambda x: x * 2 + 1, backend=backend, fullgraph=True)
        np.testing.assert_array_equal(compiled(X), X * 2 + 1)
        np.testing.assert_array_equal(compiled(X), X * 2 + 1)
        assert compiled.stats.hits == 1


def test_a_failing_backend_is_counted_and_the_answer_right(caplog):
    def broken(graph, example_inputs):
        raise ZeroDivisionError("inside the backend")

    compiled = dg.compile(lambda x: x + 1, backend=broken)
    np.testing.assert_array_equal(compiled(X), X + 1)
    assert compiled.stats.fallbacks == 1 and isinstance(compiled.stats.last_error, ZeroDivisionError)
    assert "runs eagerly: the compiler failed" in caplog.text
    with config.override(strict=True), pytest.raises(ZeroDivisionError):
        dg.compile(lambda x: x + 1, backend=broken)(X)
    with pytest.raises(ZeroDivisionError):
        dg.compile(lambda x: x + 1, backend=broken, fullgraph=True)(X)


def test_the_limit_is_loud_once_and_then_eager():
    compiled = dg.compile(lambda x, k: x * k, dynamic=False)
    with config.override(entry_limit=2):
        compiled(X, 1), compiled(X, 2)
        with pytest.warns(dg.RecompileLimitWarning, match="has 2 programs for as many kinds of arguments"):
            np.testing.assert_array_equal(compiled(X, 3), X * 3)
        np.testing.assert_array_equal(compiled(X, 4), X * 4)
    assert compiled.stats.compiles == 2
    compiled.reset()
    compiled(X, 5)
    assert compiled.stats.entries == 1


def test_threads_compile_once_and_agree():
    compiled = dg.compile(lambda x: np.exp(x).sum())
    x = np.random.default_rng(0).standard_normal(50_000)
    barrier = threading.Barrier(4)

    def work(_):
        barrier.wait()
        return [float(compiled(x)) for _ in range(50)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = {v for values in pool.map(work, range(4)) for v in values}
    assert len(results) == 1 and compiled.stats.compiles == 1


def test_children_of_a_fork_compute():
    compiled = dg.compile(lambda x: np.tanh(x).sum())
    x = np.linspace(0, 1, 200_000)
    expected = float(compiled(x))
    script_pid = os.fork()
    if script_pid == 0:
        os._exit(0 if float(compiled(x)) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(script_pid, 0)[1]) == 0


def test_explain_runs_nothing():
    ran = []

    def noisy(x):
        ran.append(1)
        return x + 1

    assert "one graph of" in str(dg.explain(noisy)(X)) and not ran
    text = str(dg.explain(lambda x: x + 1)(X))
    assert "one graph of" in text and "local x: float64[4]" in text


def test_disable():
    compiled = dg.compile(lambda x: x + 1)
    with dg.disable():
        compiled(X)
    assert compiled.stats.compiles == 0
    compiled(X)
    assert compiled.stats.compiles == 1
    assert dg.disable(compiled) is compiled.__wrapped__
    assert not dg.is_compiling()


def test_generators_run_eagerly_with_a_reason():
    def numbers(x):
        yield x

    compiled = dg.compile(numbers)
    assert next(compiled(X)) is X
    assert "generators and coroutines run eagerly" in next(iter(compiled.stats.breaks))
    with pytest.raises(dg.CaptureError, match="generators"):
        dg.compile(numbers, fullgraph=True)(X)


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("threads", "ten", "an integer of 1 to 1000, or unset"),
        ("threads", 0, "an integer of 1 to 1000, or unset"),
        ("strict", "perhaps", "0 or 1"),
        ("entry_limit", True, "an integer of at least 1"),
        ("log", "noise", "a comma-separated list"),
    ],
)
def test_switches_are_checked(name, value, expected):
    before = getattr(config, name)
    with pytest.raises(dg.ConfigError, match=f"^config.{name}={value!r}: expected {expected}"):
        setattr(config, name, value)
    assert getattr(config, name) == before


def test_unknown_switches_are_named():
    with pytest.raises(AttributeError, match=r"config has no switch 'thread'; did you mean threads\? it has threads"):
        config.thread = 1
    with pytest.raises(AttributeError, match="no switch 'sttrict'"), config.override(sttrict=True):
        pass


def test_override_restores_after_an_error():
    with pytest.raises(KeyError), config.override(strict=True, threads=1):
        assert config.strict and config.threads == 1
        raise KeyError
    assert not config.strict


def test_a_bad_environment_variable_is_explained():
    environment = {**os.environ, "DYNAGRAPH_THREADS": "ten"}
    result = subprocess.run([sys.executable, "-c", "import dynagraph"], env=environment, capture_output=True, text=True)
    assert "DYNAGRAPH_THREADS='ten': expected an integer of 1 to 1000, or unset" in result.stderr


def test_importing_is_light():
    script = "import sys, numpy, dynagraph; print([m for m in ('networkx', 'rich', 'click', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


# -- control --------------------------------------------------------------------------------------------------------------


def test_graph_break_splits_the_graph():
    def f(x):
        y = x + 1
        dg.graph_break()
        return y * 2

    compiled = dg.compile(f)
    for _ in range(2):
        np.testing.assert_array_equal(compiled(X), f(X))
    assert compiled.stats.compiles == 2 and any("graph_break() was called" in text for text in compiled.stats.breaks)
    with pytest.raises(dg.CaptureError, match="graph-break"):
        dg.compile(f, fullgraph=True)(X)


def test_is_compiling_is_true_in_captured_code():
    compiled = dg.compile(lambda x: x + 1 if dg.is_compiling() else x)
    np.testing.assert_array_equal(compiled(X), X + 1)

    def of_elements(x):
        items = [x[k] for k in range(3)]  # a native loop, which goes on to the end of the function
        return dg.is_compiling(), len(items)

    def in_a_loop(x):
        total = 0.0
        for k in range(len(x)):
            total += x[k] if dg.is_compiling() else 100.0
        return total

    with dg.config.override(unroll_limit=4):
        assert dg.compile(of_elements, mode="max")(np.arange(8.0)) == (True, 3)
        assert dg.compile(in_a_loop, mode="max")(np.arange(100.0)) == 4950.0


def test_allow_in_graph_follows_a_function_of_a_library():
    scope = {"__name__": "scipy.somewhere", "np": np}
    exec("def twice(x):\n    return np.add(x, x)\n", scope)
    twice = scope["twice"]
    compiled = dg.compile(lambda x: twice(x) + 1, fullgraph=True)
    with pytest.raises(dg.CaptureError, match=r"scipy\.somewhere\.twice"):
        compiled(X)
    assert dg.allow_in_graph(twice) is twice
    np.testing.assert_array_equal(compiled(X), X + X + 1)
    with pytest.raises(TypeError, match="written in Python"):
        dg.allow_in_graph(np.add)


def test_blocks_of_several_threads_end_in_any_order():
    """What the block that ended last had found when it began is not what holds afterwards."""
    overrides = (lambda value: dg.config.override(unroll_limit=value)), (lambda: dg.config.unroll_limit)
    for make, now in [(dg.stance, control.current_stance), overrides]:
        before = now()
        values = ("force_eager", "fail_on_recompile") if make is dg.stance else (7, 8)
        first, second = make(values[0]), make(values[1])
        first.__enter__()
        second.__enter__()
        assert now() == values[1]
        first.__exit__(None, None, None)
        assert now() == values[1]
        second.__exit__(None, None, None)
        assert now() == before


def test_a_switch_that_is_set_within_a_block_ends_with_it():
    before = dg.config.unroll_limit, dg.config.inline_depth
    with dg.config.override(unroll_limit=7):
        dg.config.unroll_limit = 9
        dg.config.inline_depth = before[1] + 1  # the block says nothing of it: it stays
        assert dg.config.unroll_limit == 9
    assert (dg.config.unroll_limit, dg.config.inline_depth) == (before[0], before[1] + 1)
    dg.config.inline_depth = before[1]


def test_a_stance_as_a_statement_ends_with_the_block_around_it():
    with dg.stance("eager_on_recompile"):
        dg.stance("force_eager")
        assert control.current_stance() == "force_eager"
    assert control.current_stance() == "default"


def test_stances():
    compiled = dg.compile(lambda x, k: x * k)
    with dg.stance("force_eager"):
        compiled(X, 2)
    assert compiled.stats.compiles == 0 and compiled.enabled
    compiled(X, 2)
    with dg.stance("eager_on_recompile"):
        np.testing.assert_array_equal(compiled(X, 3), X * 3)
        np.testing.assert_array_equal(compiled(X, 2), X * 2)
    assert compiled.stats.compiles == 1
    with dg.stance("fail_on_recompile"):
        np.testing.assert_array_equal(compiled(X, 2), X * 2)
        with pytest.raises(dg.CaptureError, match=r"fail_on_recompile.*local k: expected 2, got 7"):
            compiled(X, 7)
    dg.stance("force_eager")
    dg.stance("default")
    assert compiled.enabled
    with pytest.raises(ValueError, match="stance: 'lazy': expected 'default'"):
        dg.stance("lazy")


def test_misses_are_explained_in_one_line_each():
    compiled = dg.compile(lambda x, k: x * k, dynamic=False)
    compiled(X, 2), compiled(X, 3), compiled(X.astype(np.float32), 3)
    first, second = compiled.explain_misses()
    assert first.endswith("local k: expected 2, got 3")
    assert second.endswith("local x: expected float64[4], got float32[4]")


def test_misses_behind_weak_references_are_explained():
    class Held:
        def __init__(self, k):
            self.k = k

    two, three = Held(2), Held(3)
    compiled = dg.compile(lambda x, ref: x * ref().k)
    compiled(X, weakref.ref(two)), compiled(X, weakref.ref(three))
    (miss,) = compiled.explain_misses()
    assert miss.endswith("local ref().k: expected 2, got 3")


def test_mark_dynamic_takes_any_size_from_the_start():
    compiled = dg.compile(lambda x: x * 2)
    for n in (4, 5, 6):
        x = np.ones((n, 3))
        dg.mark_dynamic(x, 0)
        np.testing.assert_array_equal(compiled(x), x * 2)
    assert compiled.stats.compiles == 1
    with pytest.raises(ValueError, match="axis 2 of an array of 2 dimensions"):
        dg.mark_dynamic(x, 2)
    with pytest.raises(TypeError, match="expected an array, got list"):
        dg.mark_dynamic([1.0], 0)


def test_floats_that_change_become_inputs():
    def step(x, rate, decay):
        return x - rate * 2 * x, 1 - decay, x.astype(np.float32) * rate, -rate / 4

    compiled = dg.compile(step)
    for rate in (0.1, 0.2, 0.3, float("nan"), 0.5):
        for got, want in zip(compiled(X, rate, rate / 2), step(X, rate, rate / 2)):
            np.testing.assert_array_equal(got, want)
            assert type(got) is type(want) and getattr(got, "dtype", None) == getattr(want, "dtype", None)
    assert compiled.stats.compiles == 2


def test_floats_that_decide_are_constants():
    def step(x, rate):
        return x * rate if rate > 0.25 else x / rate

    compiled = dg.compile(step, fullgraph=True)
    for rate in (0.1, 0.2, 0.3, 0.1):
        np.testing.assert_array_equal(compiled(X, rate), step(X, rate))
    assert compiled.stats.compiles == 3


def test_a_break_elsewhere_leaves_floats_symbolic():
    def step(x, rate):
        y = x * rate
        return y * y.tolist()[0]

    compiled = dg.compile(step)
    for rate in (0.1, 0.2, 0.3, 0.4):
        np.testing.assert_array_equal(compiled(X + 1, rate), step(X + 1, rate))
    assert compiled.stats.compiles <= 5
