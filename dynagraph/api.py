"""The public entry points: `compile` and `explain`.  Nothing here needs the compiler before a call does."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

from dynagraph._core import _dispatch
from dynagraph.cuda.devices import device_index
from dynagraph.cuda.state import require_cupy
from dynagraph.driver import loading, runtime
from dynagraph.driver.control import collecting, disable, reset, stance
from dynagraph.driver.decorated import BACKENDS, MODES, CompileBudgetWarning, Decorated, Options, RecompileLimitWarning
from dynagraph.errors import BackendError, CudaError
from dynagraph.markers import allow_in_graph, graph_break, is_compiling, mark_dynamic

__all__ = [
    "CompileBudgetWarning",
    "Explanation",
    "RecompileLimitWarning",
    "allow_in_graph",
    "collecting",
    "compile",
    "disable",
    "explain",
    "graph_break",
    "is_compiling",
    "mark_dynamic",
    "reset",
    "stance",
]


UNLIMITED = "max"  # the mode without a compile budget


def compile(fn: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: Union[str, Callable[..., Any]] = "cpu", mode: str = "default", device: str | None = None) -> Any:
    """Compile a NumPy function: the first call of each kind of arguments captures it, later ones run machine code.

    fn: a function, lambda, method, staticmethod or classmethod; without it, `compile` gives a decorator.
    fullgraph: raise CaptureError if the function cannot be captured whole, instead of breaking the graph.  While compiling is put
    off (see mode), calls run eagerly; the error comes with the attempt.
    dynamic: None makes sizes of arrays and Python numbers symbolic once they change; True makes all sizes symbolic at once, False
    none.
    backend: "cpu", "c", "numpy", "reference", or a callable(graph, example_inputs) that gives a callable.
    mode: "default": every operation rounds as IEEE 754 says, and compiling costs at most 0.5 s more than plain calls have taken
    (`dg.config.compile_budget`); compiling that would cost more is put off.  "max": as "default", and compiling may take any time.
    The other modes are for programs of CuPy arrays; other programs run as in "default".
    "fast": x*y + z may round once, division and square root may be 2 ULP off, and float32 denormals are flushed to zero.
    "reduce-overhead": values of "default"; if a call repeats (arrays at the same addresses and of the same sizes, the same numbers,
    the same stream), its kernels are one launch of a CUDA graph.  Other calls launch kernel by kernel.  Each thread keeps the
    memory of two sets of results for the last eight such calls; results that are still in use, also by views, are not overwritten.
    device: where functions of NumPy arrays compute; functions of CuPy arrays compute where the arrays are.  None or "cpu": on the
    host.  "cuda", "cuda:1"...: on that device, except for what only the host can do.  "auto": each part where it is estimated to be
    fastest, copies counted (`dynagraph dump --placement`).  Arguments and results stay NumPy's.

    The result behaves like `fn` and also has `stats`, `reset()`, `programs`, `last_graph` and `explain_misses()`.
    Raises TypeError if `fn` is not a Python function, ValueError for an unknown mode or device, BackendError for an unknown
    backend, CudaError if a device is asked for and CUDA cannot be used, or has no such device.

    While a trace function is set in a thread (`sys.settrace`: debuggers, coverage), or a debugger or coverage tool is registered
    with `sys.monitoring`, calls run the plain function, so that breakpoints stop and lines are counted.  So does a function that
    calls `breakpoint()`.  Profilers see what really runs.

    >>> import numpy as np, dynagraph as dg
    >>> @dg.compile
    ... def f(x, y):
    ...     return np.tanh(x) + y
    >>> f(np.zeros(3), np.ones(3))
    array([1., 1., 1.])
    """
    options = _options(fullgraph, dynamic, backend, mode, device)
    if fn is None:
        return lambda function: compile_as(function, options)
    return compile_as(fn, options)


def _options(fullgraph: bool, dynamic: bool | None, backend: Any, mode: str, device: Any = None) -> Options:
    for name, value, allowed in (("fullgraph", fullgraph, (True, False)), ("dynamic", dynamic, (True, False, None))):
        if not any(value is a for a in allowed):
            raise TypeError(f"compile: {name}={value!r}: expected {' or '.join(map(repr, allowed))}")
    if mode not in (*MODES, UNLIMITED):
        raise ValueError(f"compile: mode={mode!r}: expected {' or '.join(map(repr, (*MODES, UNLIMITED)))}")
    if not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"compile: backend={backend!r}: expected a name or a callable(graph, example_inputs)")
    if isinstance(backend, str) and backend not in BACKENDS:
        raise BackendError(
            f"unknown backend {backend!r}; known ones are {', '.join(sorted(BACKENDS))}, or pass a callable(graph, example_inputs)"
        )
    _check_device(device, backend)
    # who names a device, the reference or a backend of his own wants it to run
    measured = device in (None, "cpu") and backend in ("cpu", "c", "numpy")
    as_made = "default" if mode == UNLIMITED else mode
    return Options(fullgraph, dynamic, backend, as_made, device, limited=mode != UNLIMITED, measured=measured)


def _check_device(device: Any, backend: Any) -> None:
    if device is None or device == "cpu":
        return
    expected = 'expected "cpu", "cuda", "cuda:0", ..., "auto" or None'
    if not isinstance(device, str):
        raise TypeError(f"compile: device={device!r}: {expected}")
    if device != "auto" and re.fullmatch(r"cuda(:\d+)?", device, re.ASCII) is None:
        raise ValueError(f"compile: device={device!r}: {expected}")
    if not isinstance(backend, str):
        raise ValueError(f"compile: device={device!r} with a backend of your own, which decides that itself; leave one of them out")
    try:
        require_cupy()
    except CudaError as error:
        raise CudaError(f"compile: device={device!r}: {error}") from error
    if device != "auto":
        device_index(device)


def compile_as(fn: Any, options: Options) -> Any:
    """`compile` with options that are checked already."""
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(compile_as(fn.__func__, options))
    if isinstance(fn, types.MethodType):
        return types.MethodType(compile_as(fn.__func__, options), fn.__self__)
    if isinstance(fn, _dispatch.CompiledFunction):
        fn = fn.__wrapped__
    if hasattr(type(fn), "__dynagraph_function__"):  # an object that says how calls of it are compiled: a model
        fn = getattr(fn, "_orig_mod", fn)
        return fn.__dynagraph_view__(compile_as(fn.__dynagraph_function__, options))
    if not isinstance(fn, types.FunctionType):
        kind = type(fn).__name__
        raise TypeError(f"compile: expected a function written in Python, got {fn!r} of type {kind}; {_instead_of(fn)}")
    return Decorated(fn, options).presented()


def _instead_of(thing: Any) -> str:
    """What to give `compile` in place of what it does not take."""
    if isinstance(thing, functools.partial):
        return "compile its function: functools.partial(dg.compile(p.func), *p.args, **p.keywords)"
    if isinstance(inspect.unwrap(thing) if callable(thing) else thing, types.FunctionType):
        return "compile the function that it wraps, and wrap the result"
    if inspect.isclass(thing):
        return "compile its methods, or a function that makes and uses it"
    if not callable(thing):
        return "which cannot be called"
    if isinstance(inspect.getattr_static(type(thing), "__call__"), types.FunctionType):
        return "compile a function that calls it: dg.compile(lambda *args: obj(*args)), or the class's __call__"
    return "it is compiled code already: compile the Python function that calls it"


NOT_FOLLOWED = "what comes after a break is captured when a call gets there: call f, see f.stats.breaks"


@dataclass(frozen=True)
class Explanation:
    """What `dg.explain` found out; `str()` it."""

    name: str
    program: Any  # a `Program` of driver/compilation.py, or None
    reason: str | None  # why the call would run eagerly
    earlier: tuple[str, ...] = ()  # breaks that calls of the function have met so far, a line each

    def __str__(self) -> str:
        more = "".join(f"\n  {line}" for line in self.earlier)
        if self.program is None:
            return f"{self.name} runs eagerly: {self.reason}" + (f"\nbreaks that earlier calls have met:{more}" if more else "")
        captured = self.program.captured
        guards = "\n".join(f"  {line}" for line in captured.guards.describe())
        if self.program.loops:
            guards += "\nloops:" + "".join(f"\n  {line}" for line in self.program.loops)
        if captured.joined:
            guards += "\ngradients: the call is one node of the autograd graph"
        if captured.not_joined:
            guards += f"\ngradients: operations are recorded one by one: {captured.not_joined}"
        if captured.stop is not None:
            guards += f"\nbreaks, and goes on after:\n  {captured.stop}\n"
            guards += f"breaks that earlier calls have met:{more}" if more else NOT_FOLLOWED
        return (f"{self.name}: one graph of {len(captured.graph)} nodes, captured in "
                f"{1e3 * self.program.capture_seconds:.1f} ms, compiled in {1e3 * self.program.compile_seconds:.1f} ms\n"
                f"graph:\n  " + str(captured.graph).replace("\n", "\n  ") + f"\nguards:\n{guards}")


def explain(fn: Any) -> Callable[..., Explanation]:
    """``explain(f)(*args)``: how a call of `f` would be compiled, without running it.

    >>> import numpy as np, dynagraph as dg
    >>> print(str(dg.explain(lambda x: x + 1)(np.zeros(3))).splitlines()[0].split(",")[0])
    <lambda>: one graph of 4 nodes
    """
    first: tuple[Any, ...] = ()
    if hasattr(type(fn), "__dynagraph_function__"):
        first = (getattr(fn, "_orig_mod", fn),)
        fn = fn.__dynagraph_function__
    compiled = fn if isinstance(fn, _dispatch.CompiledFunction) else compile_as(fn, _options(False, None, "cpu", "default"))

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        found: Explanation = loading.compiler().explained(compiled, first + args, kwargs)
        return found

    return explained


runtime.start()
