"""Compiled functions among what else lives in a process: tracers, debuggers, profilers, threads, forks, the garbage collector,
signals, and the end of the interpreter."""

from __future__ import annotations

import bdb
import concurrent.futures
import contextlib
import cProfile
import gc
import io
import os
import pstats
import signal
import subprocess
import sys
import textwrap
import threading
import time
import trace
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.frontend.executor.capture import capture
from tests.sampling import examples

HERE = os.path.abspath(__file__)
X = np.arange(4.0)


def straight(x):
    y = x * 2
    return y + 1


def helper(x):
    z = x - 1
    return z * 3


def broken(x, k=2):
    y = x * k
    if y.sum() > 0:  # a break
        y = helper(y)
    else:
        y = y - 5
    return y + 1


def looping(x, n):
    for _ in range(n):
        x = x * 1.5
        if x.max() > 10:  # a break
            x = x / 10
    return x + 1


def raising(x, flag):
    y = x + 1
    total = float(y.sum())  # a break
    try:
        if flag:
            raise ValueError(total)
    finally:
        y = y * 2
    return y


CALLS: list[tuple[Callable, tuple]] = [
    (straight, (X,)),
    (broken, (X,)),
    (broken, (-X,)),
    (looping, (X + 1, 6)),
    (raising, (X, False)),
    (raising, (X, True)),
]
over_calls = pytest.mark.parametrize("function, args", CALLS, ids=lambda v: getattr(v, "__name__", None))


def outcome(function: Callable, args: tuple) -> Any:
    try:
        return function(*args).tolist()
    except ValueError as error:
        return str(error)


def warm(function: Callable, *args: Any) -> Any:
    compiled = dg.compile(function, backend="numpy")
    for _ in range(2):
        outcome(compiled, args)
    return compiled


def python(script: str, *options: str, stdin: str | None = None, folder: Path | None = None, env: dict | None = None) -> Any:
    """Run a script in a process of its own."""
    where = ["-c", textwrap.dedent(script)]
    if folder is not None:
        file = folder / "script.py"
        file.write_text(textwrap.dedent(script))
        where = [str(file)]
    return subprocess.run(
        [sys.executable, *options, *where], input=stdin, capture_output=True, text=True, timeout=240,
        env={**os.environ, **(env or {})},
    )


def succeeds(*args: Any, **kwargs: Any) -> str:
    done = python(*args, **kwargs)
    assert done.returncode == 0 and not done.stderr, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# -- tracers ------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def tracing(set_it: Callable, function: Callable):
    """With a trace or profile function; the one before is put back."""
    before = sys.gettrace() if set_it is sys.settrace else sys.getprofile()
    set_it(function)
    try:
        yield
    finally:
        set_it(before)


class Events:
    """A trace or profile function that notes what it is told of this file's frames, and that frames nest."""

    def __init__(self) -> None:
        self.seen: list[tuple] = []
        self.open: list[Any] = []

    def __call__(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "call":
            self.open.append(frame)
        elif event == "return" and self.open:  # not of frames that were there before
            assert self.open.pop() is frame
        if frame.f_code.co_filename == HERE and frame.f_code.co_name in ("straight", "helper", "broken", "looping", "raising"):
            self.seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return self


def events_of(set_it: Callable, function: Callable, args: tuple) -> tuple[Any, list]:
    events = Events()
    with tracing(set_it, events):
        result = outcome(function, args)
    return result, events.seen


@over_calls
def test_a_trace_function_sees_every_line(function, args):
    expected = events_of(sys.settrace, function, args)
    cold = dg.compile(function, backend="numpy")
    assert events_of(sys.settrace, cold, args) == expected
    assert cold.stats.compiles == 0  # and it does not count as a kind of arguments that breaks
    assert outcome(cold, args) == expected[0] and (cold.stats.compiles or function is raising)
    assert events_of(sys.settrace, warm(function, *args), args) == expected


@over_calls
def test_profile_functions_see_frames_that_nest(function, args):
    expected = outcome(function, args)
    cold = dg.compile(function, backend="numpy")
    for _ in range(4):
        result, seen = events_of(sys.setprofile, cold, args)
        assert result == expected
        lines = {line for _, name, line in seen if name == function.__name__}
        first = function.__code__.co_firstlineno
        assert lines <= set(range(first, first + 12))


def test_tracing_ends_and_compiled_code_runs_again():
    f = warm(broken, X)
    hits = f.stats.hits
    events_of(sys.settrace, f, (X,))
    assert f.stats.hits == hits
    f(X)
    assert f.stats.hits == hits + 1


def test_a_tracer_of_another_thread_is_that_threads():
    f = warm(straight, X)
    seen = []

    def work():
        seen.append(events_of(sys.settrace, f, (X,)))

    thread = threading.Thread(target=work)
    hits = f.stats.hits
    thread.start()
    thread.join()
    f(X)
    assert seen == [events_of(sys.settrace, straight, (X,))] and f.stats.hits == hits + 1


def starts_tracing(events):
    sys.settrace(events)


def stops_tracing(_):
    sys.settrace(None)


def switching(x, change, events):
    y = x * 2
    change(events)  # a break
    z = y + 1
    if z.sum() > 0:
        z = helper(z)
    return z


@pytest.mark.parametrize("set_it", [sys.settrace, sys.setprofile], ids=lambda f: f.__name__)
def test_tracing_set_and_unset_inside(set_it):
    before = sys.gettrace() if set_it is sys.settrace else sys.getprofile()
    expected = switching(X, lambda _: None, None).tolist()
    f = dg.compile(switching, backend="numpy")
    for _ in range(4):
        events = Events()
        try:
            assert f(X, set_it, events).tolist() == expected
        finally:
            set_it(before)
        if set_it is sys.settrace:
            assert ("call", "helper", helper.__code__.co_firstlineno) in events.seen
        with tracing(set_it, Events()):
            assert f(X, lambda _: set_it(None), None).tolist() == expected


def test_a_trace_function_that_raises():
    def tracer(frame, event, arg):
        if frame.f_code is broken.__code__ and event == "line" and frame.f_lineno == broken.__code__.co_firstlineno + 2:
            raise OverflowError("the tracer's")
        return tracer

    for f in (dg.compile(broken, backend="numpy"), warm(broken, X)):
        with pytest.raises(OverflowError, match="the tracer's"), tracing(sys.settrace, tracer):
            f(X)
        assert f(X).tolist() == broken(X).tolist()


def test_compiled_functions_called_by_a_trace_function():
    inner = warm(straight, X)
    results = []

    def tracer(frame, event, arg):
        if frame.f_code is broken.__code__:
            results.append(inner(X).tolist())
        return tracer

    f = dg.compile(broken, backend="numpy")
    with tracing(sys.settrace, tracer):
        assert f(X).tolist() == broken(X).tolist()
    assert results and all(r == straight(X).tolist() for r in results)


def test_a_line_counter_counts_as_for_the_plain_function():
    def counted(function):
        tracer = trace.Trace(count=1, trace=0)
        before = sys.gettrace()
        try:
            tracer.runfunc(function, X)
        finally:
            sys.settrace(before)
        return {k: v for k, v in tracer.results().counts.items() if k[0] == HERE and "outcome" not in k}

    for function in (straight, broken):
        assert counted(warm(function, X)) == counted(function)


def test_cprofile():
    f = dg.compile(broken, backend="numpy")
    for _ in range(3):
        profile = cProfile.Profile()
        assert profile.runcall(f, X).tolist() == broken(X).tolist()
        stats = pstats.Stats(profile, stream=io.StringIO())
        assert all(calls >= 0 and time >= 0 for calls, _, _, time, _ in stats.stats.values())
    profile.enable()
    try:
        assert dg.compile(looping, backend="numpy")(X + 1, 6).tolist() == looping(X + 1, 6).tolist()
    finally:
        profile.disable()


# -- sys.monitoring -------------------------------------------------------------------------------------------------------------

monitored = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of 3.12")


@contextlib.contextmanager
def tool(number: int, seen: list, local: Any = None):
    """A tool of sys.monitoring that notes the lines, starts and returns of this file's functions."""
    monitoring = sys.monitoring
    events = monitoring.events
    names = {"straight", "helper", "broken", "looping", "raising"}

    def noting(kind):
        def note(code, where, *rest):
            if code.co_filename == HERE and code.co_name in names:
                seen.append((kind, code.co_name, where if kind == "line" else None))

        return note

    monitoring.use_tool_id(number, "test")
    kinds = {events.LINE: "line", events.PY_START: "start", events.PY_RETURN: "return", events.PY_UNWIND: "unwind"}
    for event, kind in kinds.items():
        monitoring.register_callback(number, event, noting(kind))
    try:
        if local is None:
            monitoring.set_events(number, events.LINE | events.PY_START | events.PY_RETURN | events.PY_UNWIND)
        else:
            monitoring.set_local_events(number, local.__code__, events.LINE)
        yield
    finally:
        monitoring.set_events(number, 0)
        if local is not None:
            monitoring.set_local_events(number, local.__code__, 0)
        for event in (events.LINE, events.PY_START, events.PY_RETURN, events.PY_UNWIND):
            monitoring.register_callback(number, event, None)
        monitoring.free_tool_id(number)


@monitored
@pytest.mark.parametrize("number", [0, 1], ids=["debugger", "coverage"])
@over_calls
def test_debuggers_and_coverage_by_monitoring_see_every_line(number, function, args):
    seen: dict[str, list] = {"plain": [], "cold": [], "warm": []}
    functions = {"plain": function, "cold": dg.compile(function, backend="numpy"), "warm": warm(function, *args)}
    results = []
    for name, f in functions.items():
        with tool(number, seen[name]):
            results.append(outcome(f, args))
    assert seen["cold"] == seen["plain"] == seen["warm"]
    assert results[0] == results[1] == results[2]
    assert functions["cold"].stats.compiles == 0


@monitored
def test_a_breakpoint_by_monitoring_in_an_inlined_function():
    f = dg.compile(lambda x: helper(x) + 1, backend="numpy")
    f(X)
    seen: list = []
    with tool(0, seen, local=helper):
        f(X)
    assert [line - helper.__code__.co_firstlineno for _, _, line in seen] == [1, 2]
    hits = f.stats.hits
    f(X)
    assert f.stats.hits == hits + 1


@monitored
@pytest.mark.parametrize("number", [2, 3, 5], ids=["profiler", "other", "optimizer"])
@over_calls
def test_other_tools_of_monitoring(number, function, args):
    f = dg.compile(function, backend="numpy")
    expected = outcome(function, args)
    for _ in range(4):
        seen: list = []
        with tool(number, seen):
            assert outcome(f, args) == expected
        starts = sum(kind == "start" for kind, _, _ in seen)
        assert starts == sum(kind in ("return", "unwind") for kind, _, _ in seen)


# -- debuggers --------------------------------------------------------------------------------------------------------------------

DEBUGGED = """
    import sys
    import numpy as np
    import dynagraph as dg

    decorate = dg.compile(backend="numpy") if sys.argv[1:] != ["plain"] and not {plain} else (lambda f: f)

    def helper(x):
        z = x - 1
        {inner}
        return z * 3

    @decorate
    def f(x, k):
        unused = k + 7
        y = x * k
        {outer}
        if y.sum() > 0:
            y = helper(y)
        return y + 1

    for k in range(2, 5):
        print("result", f(np.arange(3.0), k))
"""


def session(folder: Path, commands: list[str], options: tuple[str, ...] = (), **places: str) -> list[str]:
    """The debugger's output for the compiled and for the plain function, which must be the same."""
    outputs = []
    for plain in (False, True):
        script = DEBUGGED.format(plain=plain, inner=places.get("inner", "pass"), outer=places.get("outer", "pass"))
        done = python(script, *options, stdin="\n".join(commands) + "\n", folder=folder)
        assert done.returncode == 0 and not done.stderr, done.stderr + done.stdout
        outputs.append(done.stdout.splitlines())
    assert outputs[0] == outputs[1]
    return outputs[0]


def test_breakpoint_inside_the_function(tmp_path):
    commands = ["p k", "p unused", "n", "n", "p y", "c"] + ["p sorted(locals())", "unt 21", "p y", "c"] + ["p k * 100", "c"]
    output = session(tmp_path, commands, outer="breakpoint()")
    assert "(Pdb) 9" in output and "(Pdb) 400" in output and "(Pdb) ['k', 'unused', 'x', 'y']" in output
    assert sum("result" in line for line in output) == 3


@pytest.mark.parametrize("statement", ["import pdb; pdb.set_trace()", "__import__('pdb').Pdb().set_trace()"])
def test_set_trace_inside_the_function(tmp_path, statement):
    output = session(tmp_path, ["p k", "n", "p y", "c"] * 3, outer=statement)
    assert sum("result" in line for line in output) == 3


def test_stepping_out_of_a_function_with_a_breakpoint(tmp_path):
    output = session(tmp_path, ["n"] * 6 + ["p k", "c", "c", "c"], outer="breakpoint()")
    assert not any("dynagraph" in line and "script" not in line for line in output), "\n".join(output)


def test_breakpoint_inside_an_inlined_function(tmp_path):
    output = session(tmp_path, ["p z", "n", "p z * 3", "c"] * 3, inner="breakpoint()")
    assert sum("result" in line for line in output) == 3


def test_pdb_runs_the_script(tmp_path):
    commands = ["b f", "c", "p k", "n", "n", "p y", "s", "p x", "c", "cl 1", "b helper", "c", "p x", "up", "p y", "c", "c", "q"]
    outputs = []
    for plain in (False, True):
        done = python(DEBUGGED.format(plain=plain, inner="pass", outer="pass"), "-m", "pdb",
                      stdin="y\n".join(c + "\n" for c in commands), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        outputs.append([line for line in done.stdout.splitlines() if "lambda" not in line])
    assert outputs[0] == outputs[1]


def test_a_bdb_breakpoint_set_after_compiling():
    f = warm(broken, X)
    stopped = []

    class Debugger(bdb.Bdb):
        def user_line(self, frame):
            if frame.f_code is broken.__code__:
                stopped.append((frame.f_lineno, sorted(frame.f_locals)))
            self.set_continue()

    debugger = Debugger()
    before = sys.gettrace()
    line = broken.__code__.co_firstlineno + 2
    try:
        assert debugger.set_break(HERE, line) is None
        assert debugger.runcall(f, X).tolist() == broken(X).tolist()
    finally:
        debugger.clear_all_breaks()
        sys.settrace(before)
    assert stopped[-1] == (line, ["k", "x", "y"])


# -- threads ----------------------------------------------------------------------------------------------------------------------


def together(n: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work` gives in n threads that start at once."""
    barrier = threading.Barrier(n)

    def start(k: int) -> Any:
        barrier.wait()
        return work(k)

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(start, range(n)))


@pytest.mark.parametrize("function", [straight, broken], ids=lambda f: f.__name__)
def test_threads_that_meet_at_the_first_call(function):
    expected = function(X).tolist()
    alone = dg.compile(function, backend="numpy")
    alone(X)
    for _ in range(10):
        f = dg.compile(function, backend="numpy")
        assert together(4, lambda k: f(X).tolist()) == [expected] * 4
        assert f.stats.compiles == alone.stats.compiles and f.stats.breaks == alone.stats.breaks
        assert f.stats.hits + f.stats.misses == 4


def test_two_threads_make_one_program():
    for _ in range(20):
        f = dg.compile(straight, backend="numpy")
        together(2, lambda k: f(X))
        assert f.stats.compiles == 1 and f.stats.entries == 1


@pytest.mark.parametrize("interval", [5e-3, 1e-5])
def test_threads_with_different_kinds_of_arguments(interval):
    kinds = [X, X.astype("f4"), np.arange(6.0).reshape(2, 3), np.arange(5), -X, np.ones((3, 3, 3)), X[::2]]
    f, g = dg.compile(broken, backend="numpy"), dg.compile(looping, backend="numpy")
    expected = [(broken(x, k).tolist(), looping(x + 1, k).tolist()) for k in (2, 3) for x in kinds]
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)

    def work(thread: int) -> None:
        for step in range(30):
            j = (thread * 5 + step * 3) % len(expected)
            x, k = kinds[j % len(kinds)], 2 + j // len(kinds)
            assert (f(x, k).tolist(), g(x + 1, k).tolist()) == expected[j]

    try:
        with dg.config.override(entry_limit=32):
            together(6, work)
    finally:
        sys.setswitchinterval(before)
    assert f.stats.fallbacks == g.stats.fallbacks == 0


def test_threads_inside_broken_parts():
    inside = threading.Barrier(4)

    def meet(k):
        inside.wait(30)
        return k

    def f(x, k):
        y = x * 2
        if y.sum() > 0:
            k = meet(k)
            y = helper(y) + k
        if y.max() > 3:
            k = meet(k)
        return y * k

    compiled = dg.compile(f, backend="numpy")
    for _ in range(3):
        results = together(4, lambda k: compiled(X, float(k)).tolist())
        assert results == together(4, lambda k: f(X, float(k)).tolist())


def test_threads_that_a_broken_part_starts():
    def f(x):
        y = x + 1
        found = []
        thread = threading.Thread(target=lambda: found.append(helper(y)))
        thread.start()
        thread.join()
        return found[0] * 2

    compiled = dg.compile(f, backend="numpy")
    for _ in range(4):
        assert compiled(X).tolist() == f(X).tolist()


local = threading.local()


def reads_local(x):
    return x * local.factor + len(local.names)


def test_thread_locals_are_each_threads_own():
    def stay(k, f):
        local.factor, local.names = k + 1.0, ["n"] * k
        first = f(X).tolist() == (X * (k + 1.0) + k).tolist()
        local.factor = k + 10.0
        return first and f(X).tolist() == (X * (k + 10.0) + k).tolist()

    f = dg.compile(reads_local, backend="numpy")
    for _ in range(3):
        assert all(together(4, lambda k: stay(k, f)))
        assert stay(7, f) and stay(2, f)


def test_thread_idents_are_not_stale():
    f = dg.compile(lambda x: (x + 1, threading.get_ident(), threading.current_thread().name), backend="numpy")
    for _ in range(2):
        idents = together(3, lambda k: (f(X)[1:], (threading.get_ident(), threading.current_thread().name)))
        assert all(got == own for got, own in idents)


# -- processes --------------------------------------------------------------------------------------------------------------------

PROCESSES = """
    import multiprocessing, os, sys, threading, time, warnings
    import numpy as np
    import dynagraph as dg

    warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads around
    dg.config.threads = 4

    @dg.compile
    def wide(x):
        return np.tanh(x) * 2 + 1

    @dg.compile
    def broken(x, k):
        y = x * k
        if y.sum() > 0:
            y = y - 1
        return y + 1

    X = np.linspace(-1, 2, 400_000)

    def work(k):
        x = X * k
        right = np.allclose(wide(x), np.tanh(x) * 2 + 1) and np.allclose(broken(x, k), x * k if x.sum() > 0 else x * k + 1)
        return bool(right), wide.stats.compiles
"""


def test_fork_after_compiled_calls_with_the_thread_pool():
    succeeds(PROCESSES + """
    assert work(1)[0]
    for k in range(4):
        child = os.fork()
        if child == 0:
            right, compiles = work(k)
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if work(2)[0] else 1)
            inner = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
            os._exit(inner + 2 * (not right) + 4 * (compiles != 1))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert work(k)[0]
    """)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pools(tmp_path, method):
    output = succeeds(PROCESSES + f"""
    if __name__ == "__main__":
        assert work(1)[0]
        with multiprocessing.get_context("{method}").Pool(2) as pool:
            for k, (right, _) in enumerate(pool.map(work, range(6))):
                assert right, k
            for got in pool.map(wide, [X, X * 2]):  # by its name
                assert got.shape == X.shape
            for got in pool.starmap(broken, [(X, 2), (X, 3)]):
                assert got.shape == X.shape
        print("done")
    """, folder=tmp_path)
    assert output == "done\n"


def test_fork_while_another_thread_compiles():
    succeeds(PROCESSES + """
    class Slow:
        def __init__(self):
            self.inside, self.go = threading.Event(), threading.Event()
        def __call__(self, graph, examples=None):
            self.inside.set()
            self.go.wait()
            from dynagraph.backends.reference import reference
            return reference(graph)

    slow = Slow()
    f = dg.compile(lambda x: x * 2 + 1, backend=slow)
    thread = threading.Thread(target=f, args=(np.ones(3),))
    thread.start()
    slow.inside.wait()
    child = os.fork()
    if child == 0:
        slow.go.set = lambda: None
        slow.inside, slow.go = threading.Event(), threading.Event()
        slow.go.set()
        os._exit(0 if f(np.ones(3)).tolist() == [3.0] * 3 and work(1)[0] else 1)
    for _ in range(300):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
    slow.go.set()
    thread.join()
    assert pid and os.waitstatus_to_exitcode(status) == 0, "the child hangs, or is wrong"
    """)


def test_fork_inside_a_broken_part():
    succeeds(PROCESSES + """
    @dg.compile
    def f(x):
        y = x * 2
        child = os.fork()
        if child == 0:
            z = y + 1
            os._exit(0 if (z == x * 2 + 1).all() else 1)
        return y + os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    for _ in range(3):
        assert (f(X) == X * 2).all()
    """)


# -- garbage ----------------------------------------------------------------------------------------------------------------------


class Held:
    def __init__(self, factor: float):
        self.factor = factor
        self.array = np.full(4, factor)


def closes_over(held: Held) -> Callable:
    def f(x):
        return x * held.factor + held.array

    return f


def closes_over_with_breaks(held: Held) -> Callable:
    def inner(x):
        return x + held.array

    def f(x):
        y = x * held.factor
        if y.sum() > 0:
            y = inner(y)
        for _ in range(2):
            y = y + float(y.max())
        return y * held.factor

    return f


def closes_over_itself(held: Held) -> Callable:
    def f(x, n=3):
        y = x * held.factor
        if y.sum() > 0 and n:
            return f(y, n - 1)
        return y

    return f


def with_a_context(held: Held) -> Callable:
    def f(x):
        try:
            with contextlib.suppress(KeyError):
                y = x * held.factor
                if y.sum() > 0:
                    raise KeyError(held)
        finally:
            z = x + held.array
        return z

    return f


@pytest.mark.parametrize(
    "factory", [closes_over, closes_over_with_breaks, closes_over_itself, with_a_context], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_everything_dies_with_the_last_reference(factory, backend):
    held = Held(2.0)
    plain = factory(held)
    f = dg.compile(plain, backend=backend)
    for x in (X, X, X.astype("f4"), -X):
        f(x)
    compilation = f.decorated.compilation
    things: list[Any] = [held, held.array, plain, f, f.decorated, compilation, *compilation.parts]
    things += [part.compiled for part in compilation.parts] + [r.__wrapped__ for r in compilation.resumes.made.values()]
    things += [p.graph for p in f.programs] + [p.captured for p in f.programs]
    things += [c.compiled for c in compilation.callees.values()]
    refs = []
    for thing in things:
        with contextlib.suppress(TypeError):
            refs.append((weakref.ref(thing), repr(thing)[:200]))
    assert len(refs) > 4
    del things, thing, held, plain, f, x, compilation
    gc.collect()
    assert [text for ref, text in refs if ref() is not None] == []


class Scale:
    factor = 1.0

    def __del__(self):
        Scale.factor += 1.0


@pytest.mark.parametrize("changes, failures", [(1, 0), (9, 1)], ids=["once", "each time"])
def test_a_finalizer_that_changes_what_is_guarded_while_it_is_captured(monkeypatch, changes, failures):
    def interrupted(*args, **kwargs):
        captured = capture(*args, **kwargs)
        if Scale.factor <= changes:
            garbage = Scale()
            garbage.itself = garbage
            del garbage
            gc.collect()
        return captured

    def f(x):
        return x * Scale.factor

    Scale.factor = 1.0
    monkeypatch.setattr("dynagraph.driver.compilation.capture", interrupted)
    compiled = dg.compile(f)
    np.testing.assert_array_equal(compiled(X), X * Scale.factor)
    assert Scale.factor == 2.0 + failures
    assert compiled.stats.fallbacks == failures and compiled.stats.compiles == 1 - failures
    assert ("class Scale was changed while" in str(compiled.stats.last_error)) == bool(failures)
    monkeypatch.undo()
    for _ in range(2):
        np.testing.assert_array_equal(compiled(X), X * Scale.factor)


def test_arguments_and_results_die_at_once():
    """Without the collector: nothing of a call is in a cycle, or is kept."""
    for function, more in ((straight, ()), (broken, ()), (looping, (5,)), (raising, (False,))):
        f = warm(function, X + 1, *more)
        for make in (lambda: np.arange(4.0) + 1, lambda: np.arange(4.0, dtype="f4")):  # a hit; a miss
            gc.collect()
            gc.disable()
            try:
                x = make()
                argument = weakref.ref(x)
                result = f(x, *more)
                outcome = weakref.ref(result)
                del x
                assert argument() is None, function
                del result
                assert outcome() is None, function
            finally:
                gc.enable()


def test_exceptions_in_a_continuation_release_everything():
    class Failing(Exception):
        pass

    def fails(_):
        raise Failing

    def f(x, held, fails):
        y = x * 2
        z = y + held.factor
        try:
            fails(z)
        finally:
            y = y + 1
        return y + z

    def g(x, held, fails):
        for _ in range(3):
            x = x * held.factor
            if x.max() > 5:
                x = fails(x)
        return x

    for function in (f, g):
        compiled = dg.compile(function, backend="numpy")
        held, x = Held(2.0), X.copy()

        def call(compiled=compiled, held=held, x=x):
            try:
                compiled(x, held, fails)
            except Failing:
                return
            raise AssertionError("no error")

        for _ in range(4):
            call()
        gc.collect()
        before = [sys.getrefcount(o) for o in (held, x, fails, compiled, function, Failing)]
        gc.disable()
        try:
            for _ in range(50):
                call()
            assert [sys.getrefcount(o) for o in (held, x, fails, compiled, function, Failing)] == before
        finally:
            gc.enable()


def test_resets_and_collections_in_the_middle_of_calls():
    def collect(x):
        gc.collect()
        return x

    def forget(x):
        compiled.reset()
        return x

    def f(x, change):
        y = x * 2
        y = change(y) + 1
        if y.sum() > 0:
            y = change(y) * 3
        return y

    for change in (collect, forget, lambda x: (dg.reset(), x)[1]):
        compiled = dg.compile(f, backend="numpy")
        for _ in range(5):
            assert compiled(X, change).tolist() == f(X, lambda x: x).tolist()


def test_a_finalizer_that_calls_the_function():
    results = []
    f = dg.compile(broken, backend="numpy")

    class Last:
        def __del__(self):
            results.append(f(X).tolist())

    def g(x):
        last = Last()
        y = x * 2
        if y.sum() > 0:
            del last
            y = y + 1
        return y

    compiled = dg.compile(g, backend="numpy")
    for n in range(1, 4):
        assert compiled(X).tolist() == (X * 2 + 1).tolist()
        assert results == [broken(X).tolist()] * n


MEMORY = """
    import gc, resource, sys
    import numpy as np
    import dynagraph as dg

    def rss():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def straight(x, k):
        return np.tanh(x) * 2 + k

    def broken(x, k):
        y = x * 2
        if y.sum() > 0:
            y = y + k
        return [y, y * 2]

    def looping(x, k):
        for _ in range(3):
            x = x * 0.5
            if x.max() > 0.1:
                x = x + 0.1
        return x + k

    def raising(x, k):
        y = x * 2
        try:
            raise ValueError(float(y.sum()))
        except ValueError as error:
            return y + len(error.args)

    x = np.linspace(0.1, 1.0, 50)
    for function in (straight, broken, looping, raising):
        f = dg.compile(function)
        for _ in range(10_000):
            f(x, 1.0)
        gc.collect()
        before, blocks = rss(), sys.getallocatedblocks()
        for _ in range(int(sys.argv[1])):
            f(x, 1.0)
        gc.collect()
        grown, more = rss() - before, sys.getallocatedblocks() - blocks
        assert grown < 600_000 and more < 1000, (function.__name__, grown, more)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="asks Linux for the memory in use")
def test_many_calls_do_not_grow(tmp_path):
    script = textwrap.dedent(MEMORY).replace("int(sys.argv[1])", "10_000")
    succeeds(script)


@pytest.mark.soak
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="asks Linux for the memory in use")
def test_a_hundred_thousand_calls_do_not_grow():
    succeeds(textwrap.dedent(MEMORY).replace("int(sys.argv[1])", "100_000"))


@pytest.mark.soak
def test_compiling_again_and_again_does_not_grow():
    succeeds("""
    import gc, resource, sys
    import numpy as np
    import dynagraph as dg

    def make(k):
        def f(x):
            y = x * k
            if y.sum() > 0:
                y = y + k
            return y
        return f

    def some(n):
        for k in range(n):
            dg.compile(make(float(k)), backend="numpy")(np.arange(4.0))
        gc.collect()
        return sys.getallocatedblocks()

    before = some(300)
    grown = some(300) - before
    assert grown < 300 * 5, grown
    """)


# -- the end, interrupts, recursion ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end", ["", "sys.exit(0)", "gc.disable()", "del dg", "raise SystemExit", "threading.Thread(target=later).start()"]
)
def test_the_interpreter_ends_with_compiled_functions_alive(end):
    succeeds(f"""
    import atexit, gc, sys, threading, time
    import numpy as np
    import dynagraph as dg

    dg.config.threads = 4

    class Holder:
        def __init__(self):
            self.f = dg.compile(lambda x: np.tanh(x) + 1)
        def __del__(self):
            self.f(np.ones(3))

    @dg.compile
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = np.tanh(y) + 1
        return y

    def later():
        time.sleep(0.1)
        for _ in range(3):
            f(np.ones(300_000))

    holder = Holder()
    kept = [holder, f(np.ones(300_000)), f(np.ones(3)), holder.f(np.ones(3))]
    sys.kept = kept
    atexit.register(f, np.ones(3))
    atexit.register(f, np.ones(5))
    {end}
    """)


def test_daemon_threads_at_the_end():
    succeeds("""
    import threading, time
    import numpy as np
    import dynagraph as dg

    @dg.compile
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = np.tanh(y) + 1
        return y

    def forever(n):
        while True:
            f(np.ones(n))

    f(np.ones(3))
    f(np.ones(300_000))
    for n in (3, 300_000):
        threading.Thread(target=forever, args=(n,), daemon=True).start()
    time.sleep(0.3)
    """)


def test_recursion_through_a_break():
    def f(x, n):
        y = x * 1.01
        if y.sum() > 0 and n > 0:
            return f(y, n - 1) + 1
        return y

    plain = f
    f = dg.compile(f, backend="numpy")
    for n in (0, 3, 40, 40):
        np.testing.assert_allclose(f(X, n), plain(X, n))


def test_recursion_without_an_end():
    succeeds("""
    import numpy as np
    import dynagraph as dg

    @dg.compile(backend="numpy")
    def f(x):
        y = x + 1
        if y.sum() > 0:
            y = f(y)
        return y

    for _ in range(3):
        try:
            f(np.ones(3))
        except RecursionError:
            print("recursion")
    print(f(-np.ones(3) * 5).tolist())
    """)


def test_keyboard_interrupts_in_a_loop_with_a_break():
    output = succeeds("""
    import os, signal, threading, time
    import numpy as np
    import dynagraph as dg

    signal.signal(signal.SIGINT, signal.default_int_handler)  # where Python starts with SIGINT ignored it installs none
    state = []

    @dg.compile
    def f(x):
        try:
            state.append("in")
            while True:
                x = x * 1.5
                if x.max() > 10:
                    x = x / 20
        finally:
            state.append("left")

    @dg.compile
    def g(x):
        while x.min() > -1:
            x = x + 0.0
        return x

    def interrupt(entered):
        while state.count("in") < entered:  # else the interrupt comes before the try block, on a slow machine
            time.sleep(0.01)
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    for function, entered in ((f, 1), (g, 0), (f, 2)):
        threading.Thread(target=interrupt, args=(entered,)).start()
        try:
            function(np.ones(3))
        except KeyboardInterrupt:
            print("interrupted")
    print(state)
    assert not dg.is_compiling()
    h = dg.compile(lambda x: x + 1, backend="numpy")
    h(np.ones(3)), h(np.ones(3))
    assert h.stats.hits == 1 and h.stats.compiles == 1
    """)
    assert output == "interrupted\n" * 3 + "['in', 'left', 'in', 'left']\n"


def test_other_threads_run_while_a_program_that_was_captured_small_works_on_much():
    compiled = dg.compile(lambda x: np.arctan2(np.tan(np.sin(x) ** 2 + 2), np.log1p(np.exp(np.cos(x)))).sum(), dynamic=True)
    many = np.linspace(0, 1, 4_000_000)
    compiled(many[:10])
    compiled(many)
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    compiled(many)
    end = time.perf_counter()
    stop.set()
    thread.join()
    assert compiled.stats.misses == 1
    assert any(start + 0.1 * (end - start) < t < start + 0.9 * (end - start) for t in ticks)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("error", ["BaseException", "Exception", "KeyboardInterrupt"])
@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_signals_at_any_moment_are_handled_within_the_try_block(backend, error):
    succeeds(f"""
    import collections, random, signal
    import numpy as np
    import dynagraph as dg
    from dynagraph.driver import loading

    loading.compiler()

    class Stop({error}):
        pass

    def stop(*args):
        raise Stop

    signal.signal(signal.SIGALRM, stop)

    def straight(x, log):
        try:
            log.append("in")
            while True:
                x = x * 1.5
                if x.max() > 10:
                    x = x / 20
        finally:
            log.append("out")

    def within_loops(x, log):
        for _ in [1]:
            for _ in [1]:
                try:
                    log.append("in")
                    while True:
                        x = x * 1.5
                        if x.max() > 10:
                            x = x / 20
                finally:
                    log.append("out")

    def calling_out(x, log):
        try:
            log.append("in")
            while True:
                x = x * 1.5 + np.median(x) * 0
                if np.percentile(x, 90) > 10:
                    x = x / 20
        finally:
            log.append("out")

    Point = collections.namedtuple("Point", "a b")

    class Bag(list):
        pass

    def making_objects(x, log):
        try:
            log.append("in")
            while True:
                point, bag, counter = Point(1, x), Bag([1, x]), collections.Counter("abc")
                pairs, numbers, add = zip(bag, [x, 2]), enumerate([1, 2]), lambda y: y + x
                x = x * 1.5
                if x.max() > 10:
                    x = x / 20
                x = add(x) - point.b
                first = next(pairs)
                bag.append(first)
                next(numbers)
                counter["a"] += 1
                assert len(bag) == 3 and counter["a"] == 2 and next(numbers) == (1, 2) and len(list(pairs)) == 1
        finally:
            log.append("out")

    for f in map(dg.compile(backend={backend!r}), (straight, within_loops, calling_out, making_objects)):
        wait = 0.25
        for round in range({examples(80, 8)}):
            log = []
            try:  # on a busy machine the first calls are cut off while they are compiled
                wait = 0.002 if f.stats.hits else min(2 * wait, 4)
                signal.setitimer(signal.ITIMER_REAL, wait + random.random() * 0.002)
                f(np.ones(3), log)
            except Stop:
                pass
            assert log in ([], ["out"], ["in", "out"]), (f.__name__, round, log)
        assert f.stats.fallbacks == 0 and f.stats.hits > 0
    """)


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_a_signal_while_a_part_is_compiled(error):
    """It is no failure of the compiler's; of a KeyboardInterrupt the part's try block knows."""
    log: list[str] = []
    graphs: list[Any] = []

    def handler(*_):
        raise error

    def backend(graph, examples=None):
        from dynagraph.backends.reference import reference

        graphs.append(graph)
        if len(graphs) == 2:
            signal.raise_signal(signal.SIGALRM)
        return reference(graph)

    def f(x):
        y = x * 2
        try:
            if y.sum() > 0:
                y = y + 1
        finally:
            log.append("left")
        return y

    compiled = dg.compile(f, backend=backend)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(error):
            compiled(X)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(graphs) == 2 and compiled.stats.fallbacks == 0
    assert log == ["left"] or error is not KeyboardInterrupt
    assert compiled(X).tolist() == f(X).tolist()


def test_an_interrupt_while_compiling():
    """Any exception that a signal's handler raises leaves the function usable."""

    class Interrupting:
        def __init__(self):
            self.error: BaseException | None = None

        def __call__(self, graph, examples=None):
            if self.error is not None:
                raise self.error
            from dynagraph.backends.reference import reference

            return reference(graph)

    backend = Interrupting()
    f = dg.compile(broken, backend=backend)
    backend.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        f(X)
    backend.error = None
    assert not dg.is_compiling()
    assert f(X).tolist() == broken(X).tolist() and f.stats.compiles > 0


def test_under_a_debugging_allocator():
    succeeds(
        """
        import gc
        import numpy as np
        import dynagraph as dg

        dg.config.entry_limit = 100

        class Config:
            def __init__(self):
                self.scale, self.names = 2.0, ["a", "b"]

        def helper(x, k):
            return x * k + 1

        @dg.compile
        def f(x, config, n=2, *rest, **more):
            y = helper(x, config.scale)
            config.names.append("c")
            for k in range(n):
                if y.sum() > k:
                    y = helper(y, k)
                try:
                    if y.max() > 100:
                        raise ValueError(k)
                except ValueError as error:
                    y = y / (error.args[0] + 100)
            print(len(config.names), *more)
            return {"y": y, "names": config.names, "rest": rest}

        config = Config()
        for round in range(3):
            for x in (np.arange(4.0), np.arange(4, dtype="f4"), np.arange(6.0).reshape(2, 3), np.ones(200_000)):
                for n in (1, 3):
                    f(x, config, n), f(x, config, n, 1, 2, key="k")
            config.scale += 1
            Config.scale2 = round
            helper.__defaults__ = (round,)
            gc.collect()
        try:
            f(np.ones(3), None)
        except AttributeError:
            pass
        f.reset()
        f(np.ones(3), config)
        del f
        gc.collect()
        """,
        "-X", "dev", "-W", "error",
        env={"PYTHONMALLOC": "debug"},
    )  # fmt: skip
