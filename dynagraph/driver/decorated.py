"""What `dg.compile` makes of a function: its options, its statistics, and the first call that needs the compiler.

On a hit a `CompiledFunction` (C) runs by itself; on a miss it calls `Decorated.on_miss`, which loads the compiler and leaves the
call to it (driver/compilation.py).
"""

from __future__ import annotations

import inspect
import sys
import types
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

from dynagraph import config
from dynagraph._core import _dispatch
from dynagraph.driver import control, loading
from dynagraph.driver.budget import Account, Ledger, ledger_of
from dynagraph.errors import CaptureError
from dynagraph.frontend.executor.breaks import Break
from dynagraph.markers import is_compiling
from dynagraph.originals import replaced

try:
    from dynagraph._core import _frame_hook
except ImportError:  # a CPython version that the hook does not know: frames that a broken part enters are not captured
    _frame_hook = None  # type: ignore[assignment]

MODES = ("default", "fast", "reduce-overhead")  # what `compile` says of them
BACKENDS = ("cpu", "c", "numpy", "reference")
REMEMBERED_MISSES = 100


class CompileBudgetWarning(UserWarning):
    """Compiling a function was put off, as it would cost more than plain calls have earned."""


class RecompileLimitWarning(UserWarning):
    """A compiled function met more kinds of arguments than it keeps programs for."""


@dataclass(frozen=True)
class Options:
    """As `dg.compile` takes them; `whole`: what cannot be captured to its end runs eagerly from its beginning.

    `limited`: compiling may cost what plain calls have earned, see driver/budget.py.  `measured`: calls go the faster way.
    `unasked`: see driver/unasked.py.
    """

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: Union[str, Callable[..., Any]] = "cpu"  # one of BACKENDS, or a user's callable(graph, example_inputs)
    mode: str = "default"  # one of MODES
    device: str | None = None
    whole: bool = False
    limited: bool = True
    measured: bool = True
    unasked: bool = False

    @property
    def names_device(self) -> bool:
        """Whether graphs of NumPy arrays may run elsewhere than on the host."""
        return self.device not in (None, "cpu")

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for options by which programs are the same; a user's backend is equal to itself alone."""
        backend = self.backend if isinstance(self.backend, str) else id(self.backend)
        return self.fullgraph, self.dynamic, backend, self.mode, self.device, self.whole, self.limited, self.measured, self.unasked


# -- statistics -----------------------------------------------------------------------------------------------------------


class Stats:
    """Counters of one compiled function, live.

    hits: calls that a program served.  misses: calls that none served.  refusals: calls on which a program bailed out, because an
    index was out of bounds or a function that it calls raised; the plain function did them.  stayed_eager: calls that ran eagerly
    although a program could have served them, because that is faster (`config.stay_eager`).  compiles: programs made, those of
    the parts after breaks included.  restored: programs that a process before this one had made (`config.cache_programs`).
    put_off: how often compiling was put off, or ended at its deadline, because plain calls had not earned its cost
    (`config.compile_budget`), or because another thread was loading the compiler.  earned_seconds: what they have earned.
    fallbacks: failures inside the compiler; each call then ran eagerly.  compile_seconds: time spent on capture and compilation.
    improve_seconds: time that the C compiler has worked beside the calls, with all optimisations, on what was compiled quickly
    first (`config.tiers`).
    improving: programs and native loops that still wait for it.  unimproved: those for which it failed; they stay as they are.
    breaks: reasons why captures
    ended before the function did, with counts.  side_exits: how often native loops were left from within, by line and reason.
    calls_out: how often they called a Python function, and went on, likewise.  not_joined: of dynagraph.torch, why operations
    that were recorded for gradients have a node each, with counts.
    """

    def __init__(self, compiled: Any):
        self._compiled = weakref.ref(compiled)
        self.put_off = 0
        self.compiles = 0
        self.restored = 0
        self.fallbacks = 0
        self.compile_seconds = 0.0
        self.breaks: Counter[str] = Counter()
        self.not_joined: Counter[str] = Counter()
        self.native_loops: list[Callable[[], tuple[Counter[str], Counter[str]]]] = []  # side exits and calls out of each
        self.tiers: list[Any] = []  # what programs and native loops ask for better code
        self.last_error: BaseException | None = None

    def _counter(self, name: str) -> int:
        compiled = self._compiled()
        return compiled.counters()[name] if compiled is not None else 0

    @property
    def hits(self) -> int:
        return self._counter("hits")

    @property
    def misses(self) -> int:
        return self._counter("misses")

    @property
    def refusals(self) -> int:
        return self._counter("refusals")

    @property
    def stayed_eager(self) -> int:
        return self._counter("stayed_eager")

    @property
    def earned_seconds(self) -> float:
        """What the calls so far took plainly, or would have taken, as far as that is known."""
        compiled = self._compiled()
        return compiled.earned if compiled is not None else 0.0

    @property
    def side_exits(self) -> Counter[str]:
        return sum((counted()[0] for counted in list(self.native_loops)), Counter())

    @property
    def calls_out(self) -> Counter[str]:
        return sum((counted()[1] for counted in list(self.native_loops)), Counter())

    def follow(self, better: Any | None) -> None:
        if better is not None and better not in self.tiers:
            self.tiers.append(better)

    @property
    def improve_seconds(self) -> float:
        return sum(better.seconds for better in list(self.tiers))

    @property
    def improving(self) -> int:
        return sum(not better.found and better.failure is None for better in list(self.tiers))

    @property
    def unimproved(self) -> int:
        return sum(better.failure is not None for better in list(self.tiers))

    @property
    def entries(self) -> int:
        compiled = self._compiled()
        return len(compiled.entries) if compiled is not None else 0

    def __repr__(self) -> str:
        return (
            f"<hits {self.hits}, misses {self.misses}, stayed eager {self.stayed_eager}, compiles {self.compiles}, "
            f"restored {self.restored}, fallbacks {self.fallbacks}, unimproved {self.unimproved}, "
            f"breaks {sum(self.breaks.values())}, put off {self.put_off}, compile seconds {self.compile_seconds:.3f}, "
            f"improve seconds {self.improve_seconds:.3f}, earned seconds {self.earned_seconds:.3f}>"
        )


# -- one decorated function ------------------------------------------------------------------------------------------------


class Decorated:
    """What `dg.compile` makes of a function: cheap, as most functions of a program may never be called."""

    compilation: Any = None  # the slow path, once a call has wanted it

    def __init__(self, function: types.FunctionType, options: Options):
        self.options = options
        self.compiled = _dispatch.CompiledFunction(function, self.on_miss)
        self.stats = Stats(self.compiled)
        # plans of transformations share a code, and there is one for each function that is transformed
        self.account = Account(Ledger() if options.whole else ledger_of(function.__code__), options.limited)
        self.programs: list[Any] = []  # a `Program` for each capture
        self.misses: deque[str] = deque(maxlen=REMEMBERED_MISSES)
        self.refused = False  # a generator or coroutine: never captured
        if _frame_hook is not None:
            _frame_hook.skip(function.__code__)  # it has a dispatcher of its own

    def presented(self) -> Any:
        """The callable, with what users see of it."""
        compiled, function = self.compiled, self.compiled.__wrapped__
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(compiled, name, getattr(function, name))
        compiled.__dict__.update(function.__dict__)
        compiled.stats = self.stats
        compiled.reset = self.reset
        compiled.explain_misses = self.explain_misses
        compiled.programs = self.programs
        compiled.last_graph = None
        compiled.decorated = self
        control.register(compiled)
        return compiled

    def on_miss(self, compiled: Any, args: tuple, kwargs: dict | None) -> Any:
        """Run a call that no entry serves.

        Gives a `Tail`, or PLAINLY, so that no frame of dynagraph's stands between the caller and the user's code: debuggers stop in
        each.
        """
        if (name := replaced()) is not None:
            self._leave_to_replaced(compiled.__wrapped__, name)
            return _dispatch.PLAINLY
        if control.is_disabled() or is_compiling() or control.current_stance() == "force_eager":
            return _dispatch.PLAINLY
        if not _capturable(compiled.__wrapped__):
            self._refuse(compiled.__wrapped__)
            return _dispatch.PLAINLY
        try:
            has_begun = self.compilation is not None or self._begin()
        except RecursionError:  # the caller's stack is nearly full
            self.stats.breaks[Break("STACK_FULL").line] += 1
            has_begun = False
        return self.compilation.on_miss(compiled, args, kwargs) if has_begun else _dispatch.PLAINLY

    def _begin(self) -> bool:
        """Load the compiler; False: not now."""
        is_limited = self.options.limited and config.compile_budget is not None
        compiler = loading.compiler_at_hand(0.0 if is_limited else loading.PATIENCE)
        if compiler is None:
            if loading.failure is None:
                self.stats.put_off += 1
            elif not sys.is_finalizing():
                self._note_that_it_cannot_be_loaded(loading.failure)
            return False
        made = compiler.Compilation(self.compiled.__wrapped__, self)
        vars(self).setdefault("compilation", made)  # another thread may have made one meanwhile
        return True

    def _note_that_it_cannot_be_loaded(self, error: Exception) -> None:
        self.stats.fallbacks += 1
        self.stats.last_error = error
        if self.options.fullgraph or config.strict:
            loading.compiler()  # raises
        loading.warn_of_failure()

    def _leave_to_replaced(self, function: types.FunctionType, name: str) -> None:
        """Nothing is remembered: the original may come back.  No builtin is called here."""
        stop = Break("REPLACED_BUILTIN", None, name)
        self.stats.breaks[stop.line] += 1
        if self.options.fullgraph:
            raise CaptureError(f"{function.__qualname__}: {stop}")

    def _refuse(self, function: types.FunctionType) -> None:
        reason = f"{function.__qualname__}: generators and coroutines run eagerly"
        if self.options.fullgraph:
            raise CaptureError(reason)
        self.stats.breaks[reason] += 1
        self.refused, self.compiled.enabled = True, False

    def explain_misses(self) -> list[str]:
        """A line for each of the last calls that no program served though there were some: the guard that failed, old and new
        value.
        """
        return list(self.misses)

    def reset(self) -> None:
        """Forget all programs and what was learnt about breaks."""
        if self.compilation is not None:
            self.compilation.reset()


def _capturable(function: types.FunctionType) -> bool:
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
    return not function.__code__.co_flags & flags


__all__ = ["BACKENDS", "MODES", "CompileBudgetWarning", "Decorated", "Options", "RecompileLimitWarning", "Stats"]
