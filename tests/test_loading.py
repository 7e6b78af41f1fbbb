"""`import dynagraph` loads no compiler; the first call that needs it does, whatever has happened in between."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dynagraph.backends import registry
from dynagraph.driver.decorated import BACKENDS

COMPILER = (
    "dynagraph.driver.compiler", "dynagraph.driver.compilation", "dynagraph.frontend.executor.capture", "dynagraph.doors",
    "dynagraph.ir", "dynagraph.backends", "dynagraph.tools",
)  # fmt: skip
OTHERS = ("networkx", "bytecode", "click", "rich", "platformdirs", "subprocess", "concurrent.futures")
BEGIN = """
import os, signal, sys, threading, time, warnings
import numpy as np
import dynagraph as dg
from dynagraph.driver import loading

@dg.compile(backend="reference")
def f(x, y=1.0):
    return np.exp(x) * y + abs(x).sum()

X = np.linspace(-1.0, 1.0, 5)
WANT = f.__wrapped__(X)

class Between:
    '''Has something done while the compiler is loaded.'''
    def __init__(self, action):
        self.action = action
    def find_spec(self, name, path=None, target=None):
        if name == "dynagraph.ir.shapes" and self.action is not None:
            action, self.action = self.action, None
            action()

def meanwhile(action):
    sys.meta_path.insert(0, Between(action))

def check(function=f):
    assert np.array_equal(function(X), WANT)

def check_compiled(function=f):
    check(function)
    hits = function.stats.hits
    check(function)
    assert function.stats.hits == hits + 1 and function.stats.fallbacks == 0, function.stats.last_error
"""


def run(script: str, *options: str, cwd: Path | None = None) -> str:
    environment = {**os.environ, "DYNAGRAPH_STAY_EAGER": "0", "DYNAGRAPH_COMPILE_BUDGET": "unlimited"}
    done = subprocess.run(
        [sys.executable, *options, "-c", BEGIN + textwrap.dedent(script)],
        capture_output=True, text=True, check=False, timeout=300, cwd=cwd, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def is_of(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_importing_decorating_and_looking_load_no_compiler() -> None:
    script = """
        import copy, inspect, io, pickle, pydoc, typing
        from dynagraph import *
        dir(dg), repr(f), f.stats, f.programs, f.entries, f.last_graph, f.explain_misses(), inspect.signature(f)
        for name in dg.__all__:
            thing = getattr(dg, name)
            if isinstance(thing, str):
                continue
            pydoc.render_doc(thing)
            inspect.getdoc(thing), inspect.getmembers(thing)
            if inspect.isfunction(thing):
                inspect.signature(thing), inspect.getsource(thing), typing.get_type_hints(thing)
                assert pickle.loads(pickle.dumps(thing)) is thing
            if inspect.isclass(thing) and thing.__module__ != "dynagraph.cuda.streams":
                typing.get_type_hints(thing)
        dg.grad(f), dg.value_and_grad(np.tanh), dg.jacobian(f), dg.hessian(f), dg.checkpoint(f), dg.custom_vjp(f), dg.explain(f)
        assert dg.stop_gradient(X) is X and np.array_equal(dg.checkpoint(lambda x: x + 1)(X), X + 1)
        dg.graph_break(), dg.is_compiling(), dg.mark_dynamic(X), dg.allow_in_graph(run), dg.reset(), dg.config.describe()
        class A:
            @dg.compile
            def method(self, x):
                return x
            @dg.compile
            async def later(self, x):
                yield x
        A().method, A().later(X)
        with dg.disable():
            check(), A().method(X)
        with dg.stance("force_eager"):
            check()
        print(*sys.modules)
    """.replace("dg.allow_in_graph(run)", "dg.allow_in_graph(check)")
    loaded = run(script).split()
    assert "dynagraph.driver.decorated" in loaded
    assert [m for m in loaded if is_of(m, COMPILER + OTHERS)] == []


def test_the_import_alone_loads_little() -> None:
    script = "import sys, numpy, numpy.random, numpy.fft; b = {*sys.modules}; import dynagraph; print(*({*sys.modules} - b))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours = [m for m in done.stdout.split() if m.startswith("dynagraph")]
    assert [m for m in done.stdout.split() if is_of(m, COMPILER + OTHERS)] == []
    assert len(ours) < 45, ours


def test_the_first_call_loads_it_and_those_that_need_it() -> None:
    run("check_compiled(); assert loading.loaded() is sys.modules['dynagraph.driver.compiler']")
    run("assert np.allclose(dg.grad(lambda x: np.sum(x ** 2))(X), 2 * X)")
    run("assert 'one graph' in str(dg.explain(f)(X))")
    run("with dg.disable(): assert np.allclose(dg.grad(lambda x: np.sum(x ** 2))(X), 2 * X)")


# -- what a program has changed meanwhile -----------------------------------------------------------------------------------------


def test_functions_that_were_replaced_are_not_taken_for_the_originals() -> None:
    run("""
        import math, random
        def other(x):
            return x + 100
        exp, np.exp = np.exp, other
        sqrt, math.sqrt = math.sqrt, lambda x: -1.0
        rand, np.random.rand = np.random.rand, lambda *shape: np.zeros(shape)
        g = dg.compile(lambda x: np.exp(x) * math.sqrt(4.0) + np.random.rand(3).sum(), backend="reference")
        assert np.array_equal(g(X), (X + 100) * -1.0)
        assert np.exp is other and g.stats.fallbacks == 0
        np.exp, math.sqrt, np.random.rand = exp, sqrt, rand
        check_compiled()
        h = dg.compile(lambda x: other(x) * math.sqrt(4.0), backend="reference")
        assert np.array_equal(h(X), (X + 100) * 2.0)
    """)


def test_a_builtin_that_is_replaced_keeps_the_compiler_away_until_it_is_back() -> None:
    run("""
        import builtins
        original, builtins.abs = abs, lambda x: x * 0 + 100
        assert np.array_equal(f(X), np.exp(X) + 500)
        assert loading.loaded() is None and any("replaced-builtin" in line for line in f.stats.breaks)
        builtins.abs = original
        check_compiled()
    """)


def test_folders_paths_filters_and_error_states(tmp_path: Path) -> None:
    run(f"""
        os.chdir({str(tmp_path)!r})
        sys.path[:] = []
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            check()
            filters = list(warnings.filters)
        assert sys.path == [] and filters[0][0] == "error"
        check_compiled(dg.compile(f.__wrapped__, backend="reference"))
    """)


def test_a_user_s_module_of_the_same_name_does_not_get_in_between(tmp_path: Path) -> None:
    for name in ("networkx", "bytecode", "platformdirs"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user')")
    run(f"sys.path.insert(len(sys.path), {str(tmp_path)!r}); check_compiled()")


@pytest.mark.parametrize("again", [False, True], ids=["gone", "imported again"])
def test_modules_that_were_purged(again: bool) -> None:
    """As test runners do: what was imported since the session began goes from sys.modules."""
    run(f"""
        first, f.stats.hits
        for name in [name for name in sys.modules if name.split(".")[0] == "dynagraph"]:
            del sys.modules[name]
        if {again}:
            import dynagraph
            assert dynagraph is not dg
        before = {{name: module for name, module in sys.modules.items() if name.startswith("dynagraph")}}
        check_compiled()
        g = dg.compile(lambda x: (dg.graph_break(), x + 1)[1], backend="reference")
        g(X)
        assert [line.split("[")[-1] for line in g.stats.breaks] == ["graph-break]"]
        after = {{name: module for name, module in sys.modules.items() if name.startswith("dynagraph")}}
        assert before == after
    """.replace("first, f.stats.hits", "f.stats.hits"))


# -- what comes in between ---------------------------------------------------------------------------------------------------------


def test_a_handler_of_a_signal_may_call_compiled_functions() -> None:
    run("""
        called = []
        def handler(*args):
            check()
            called.append(loading.loaded())
        signal.signal(signal.SIGUSR1, handler)
        meanwhile(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        check_compiled()
        assert called == [None]
    """)


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
def test_a_load_that_a_signal_ends_begins_anew(error: str) -> None:
    run(f"""
        def handler(*args):
            raise {error}
        signal.signal(signal.SIGUSR1, handler)
        meanwhile(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        try:
            f(X)
        except {error}:
            assert loading.loaded() is None and not dg.is_compiling()
            assert not any(m.startswith(("dynagraph.ir", "dynagraph.driver.compil")) for m in sys.modules)
        else:
            raise SystemExit("it is not raised")
        check_compiled()
    """)


def test_the_first_calls_of_several_threads() -> None:
    run("""
        errors = []
        def calls():
            try:
                for _ in range(20):
                    check()
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=calls) for _ in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not errors, errors
        check_compiled()
        assert f.stats.compiles == 1
    """)


def test_a_thread_that_is_in_an_import_waits_for_none_that_loads(tmp_path: Path) -> None:
    """It holds the lock of a module that the load wants, and calls a compiled function meanwhile."""
    (tmp_path / "bytecode.py").write_text(textwrap.dedent("""
        import __main__ as main, sys
        main.begun.set()
        main.loading_now.wait(60)
        main.check()
        sys.path.remove(main.folder)
        del sys.modules["bytecode"]
        import bytecode
    """))
    run(f"""
        dg.config.compile_budget = 10.0
        begun, loading_now, folder = threading.Event(), threading.Event(), {str(tmp_path)!r}
        meanwhile(loading_now.set)
        sys.path.insert(0, folder)
        thread = threading.Thread(target=__import__, args=("bytecode",), daemon=True)
        thread.start()
        begun.wait(60)
        check_compiled()
        thread.join(60)
        assert not thread.is_alive()
    """)


@pytest.mark.parametrize("mode, waits", [("default", False), ("max", True)])
def test_calls_that_may_take_any_time_wait_for_another_thread_that_loads(mode: str, waits: bool) -> None:
    run(f"""
        begun = threading.Event()
        def slowly():
            begun.set()
            time.sleep(0.3)
        meanwhile(slowly)
        thread = threading.Thread(target=loading.compiler)
        thread.start()
        begun.wait(60)
        dg.config.compile_budget = 10.0
        f = dg.compile(lambda x: np.sin(x) + 1, mode={mode!r})
        assert np.allclose(f(X), np.sin(X) + 1)
        assert (f.stats.compiles, f.stats.put_off) == {(1, 0) if waits else (0, 1)}
        thread.join()
    """)


def test_gradients_wait_for_another_thread_that_loads() -> None:
    run("""
        begun = threading.Event()
        def slowly():
            begun.set()
            time.sleep(0.3)
        meanwhile(slowly)
        thread = threading.Thread(target=check)
        thread.start()
        begun.wait(60)
        assert np.allclose(dg.grad(lambda x: np.sum(x ** 2))(X), 2 * X)
        thread.join()
    """)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forks_by_another_thread_and_by_the_one_that_loads() -> None:
    run("""
        warnings.simplefilter("ignore")  # a fork of a process with threads
        loading.FORK_WAITS = 200.0  # loading takes longer than 10 seconds on a machine that is busy enough
        begun = threading.Event()
        def slowly():
            begun.set()
            time.sleep(0.3)
        meanwhile(slowly)
        thread = threading.Thread(target=check)
        thread.start()
        begun.wait(60)
        def in_a_child():
            child = os.fork()
            if child == 0:
                try:
                    check_compiled()
                finally:
                    os._exit(sys.exc_info()[0] is not None)
            assert os.waitpid(child, 0)[1] == 0
        in_a_child()
        thread.join()
        check_compiled()
    """)
    run("""
        child = []
        meanwhile(lambda: child.append(os.fork()))
        check_compiled()
        if child == [0]:
            os._exit(0)
        assert os.waitpid(child[0], 0)[1] == 0
    """)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_while_another_thread_looks_at_a_signature() -> None:
    """`functools.cached_property` held a lock in Python 3.11, for which the child waited for ever."""
    run("""
        import inspect
        warnings.simplefilter("ignore")  # a fork of a process with threads
        loading.compiler()
        begun, plain = threading.Event(), inspect.signature
        def slowly(*args, **options):
            begun.set()
            time.sleep(0.1)
            return plain(*args, **options)
        inspect.signature = slowly
        thread = threading.Thread(target=check)
        thread.start()
        begun.wait(60)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            check_compiled()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
    """)


def test_at_exit() -> None:
    out = run("""
        import atexit
        @atexit.register
        def last():
            check_compiled()
            print("compiled")
    """)
    assert out == "compiled\n"


def test_after_exit_has_begun_calls_run_plainly() -> None:
    run("""
        class Last:
            def __del__(self, f=f, x=X, want=WANT, exp=np.exp):
                f(x)
        sys.last = Last()
    """)


def test_where_the_stack_has_no_room() -> None:
    run("""
        def deep(n):
            return check() if n == 0 else deep(n - 1)
        deep(sys.getrecursionlimit() - 30)
        assert loading.failure is None
        threading.stack_size(256 << 10)
        thread = threading.Thread(target=check)
        thread.start()
        thread.join()
        check_compiled()
    """)


# -- where it cannot be loaded -----------------------------------------------------------------------------------------------------


def test_a_compiler_that_cannot_be_loaded_is_said_once_and_calls_run_plainly() -> None:
    run("""
        sys.modules["bytecode"] = None
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                check()
        assert [w.category for w in said] == [RuntimeWarning] and "bytecode" in str(said[0].message)
        assert f.stats.fallbacks > 0 and isinstance(f.stats.last_error, ImportError)
        for call in (dg.compile(f, fullgraph=True), dg.grad(lambda x: x ** 2), dg.explain(f)):
            try:
                call(1.0)
            except dg.CompilerError as error:
                assert "bytecode" in str(error)
            else:
                raise SystemExit("it is not raised")
    """)


def test_backends_by_name_are_those_of_the_registry() -> None:
    assert set(BACKENDS) == set(registry.BACKENDS)
