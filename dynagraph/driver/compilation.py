"""Cache misses of a compiled function: capture the call, compile it, add an entry, run it.

On a hit a `CompiledFunction` (C) runs by itself; a miss comes to `Compilation.on_miss`, which captures the call, compiles the
graph, adds an entry, and runs it.  Where the capture ends at a break, the entry goes on in a continuation and a resume function,
which is a compiled function too; Python frames that the broken part enters are captured through the frame hook (compiler.py).
Whatever cannot be captured runs as it always did.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import time
import traceback
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from dynagraph import config
from dynagraph._core import _dispatch
from dynagraph.autodiff.tape import holds_tracers, tapes_alive
from dynagraph.autodiff.transforms import call_on_tape
from dynagraph.backends.c.regions import CompiledRegion
from dynagraph.backends.executable import Backend, Executable
from dynagraph.backends.registry import get_backend, loop_compiler
from dynagraph.driver import collector, control, deadline
from dynagraph.driver.attempts import Attempt, Program, make_entry
from dynagraph.driver.background import WORK
from dynagraph.driver.budget import LEAST, Account, Needs
from dynagraph.driver.decorated import CompileBudgetWarning, Decorated, Options, RecompileLimitWarning, Stats
from dynagraph.driver.failures import Failures, Kind, Unremembered, types_of
from dynagraph.driver.forks import Locked
from dynagraph.driver.saved_programs import Found, SavedPrograms
from dynagraph.driver.signals import is_of_signal
from dynagraph.errors import CaptureError, CompilerError
from dynagraph.frontend.bytecode.assemble import call_instead
from dynagraph.frontend.bytecode.resume import Resumes, Target
from dynagraph.frontend.executor.breaks import Break, bare
from dynagraph.frontend.executor.capture import Captured, capture
from dynagraph.frontend.guards.profile import Profile
from dynagraph.frontend.loops import loop_calls
from dynagraph.frontend.loops.seen import calls_out, side_exits
from dynagraph.location import warn_caller
from dynagraph.markers import is_compiling
from dynagraph.markers import thread as _thread
from dynagraph.originals import replaced

try:
    from dynagraph._core import _frame_hook
except ImportError:  # a CPython version that the hook does not know: frames that a broken part enters are not captured
    _frame_hook = None  # type: ignore[assignment]

COLD = frozenset({"COLD_CACHE", "FIRST_IMPORT"})  # reasons that a plain call may take away
MOST_FILLS = 8  # plain calls of a kind one after the other that may do so: each may have another size, and so other entries
MAX_CHANGES = 3  # tries of a capture while what it looks at changes
MAX_CLOSURES = 8  # functions of one code that a broken part calls and that are compiled
MAX_CALLEES = 256
MOST_WIDE = 4  # programs of one continuation with ints beyond 64 bits, which are constants of theirs
REST = 30  # times as long as a look at a call that was not compiled took, the next calls run eagerly: 3 % of their time
LONGEST_REST = 1.0  # other functions may earn meanwhile
MOST_IN_VAIN = 4  # attempts to compile a part that served no call after that
UNASKED_CALLS = 7  # of a function that was measured to be faster plainly: guards cost up to a tenth of a short call


_log = logging.getLogger("dynagraph.capture")


class Compilation(Locked):
    """The slow path of one compiled function: everything that happens on a miss."""

    def __init__(
        self, function: types.FunctionType, decorated: Decorated, root: "Compilation | None" = None, target: Target | None = None
    ):
        """`root`: of a part after a break, or of a function that a broken part calls: the one of the decorated function."""
        super().__init__()
        self.decorated = decorated
        self.options: Options = decorated.options
        self.root = root or self
        self.backend: Backend = root.backend if root else get_backend(self.options.backend, self.options.mode, self.options.device)
        self.compile_loop = None if self.options.whole else loop_compiler(self.options.backend)
        self.compile_loop_in_graph = None if self.options.names_device else loop_compiler(self.options.backend)
        self.target = target
        self.code = function.__code__
        self.profile = self._new_profile()
        self.failures = Failures() if not self.options.unasked else Unremembered()
        self.account: Account = decorated.account
        self.needs = Needs()
        self.calls_loops = False  # programs call machine code of loops, which plain calls take step by step
        self.begun: dict[Kind, Attempt] = {}  # whose deadline came while the C compiler was at work
        self.saved: dict[Kind, SavedPrograms] = {}  # of the decorated function itself: what other processes have made
        self.filled: Counter[Kind] = Counter()  # how many of the last calls of a kind were left to fill caches
        self.learned: dict[Kind, dict[int, Any]] = {}  # of loops, by attempts whose deadline came before they were captured
        self.warned = False
        self.programs: list[Program] = decorated.programs
        self.full = False
        self.hits, self.in_vain = 0, 0  # of all programs at the last attempt; attempts since any was hit
        self.captures: dict[Any, Captured] = {}  # by entry
        self.shim: tuple[types.CodeType, types.CodeType] | None = None  # code, and code that runs an entry in its place
        self.compiled = decorated.compiled if root is None else _dispatch.CompiledFunction(function, self.on_miss)
        self.stats: Stats = decorated.stats
        self.parts: list[Compilation] = []  # of the root: what comes after its breaks
        self.callees: dict[types.FunctionType, Compilation] = {}  # of the root: what its broken parts call
        self.resumes = Resumes(self._part, self.root, self._is_choosy())  # a part has those of the function that it is a part of
        if _frame_hook is not None and target is not None:
            _frame_hook.skip(function.__code__)  # it has a dispatcher of its own

    def _new_profile(self) -> Profile:
        """The sizes and ints that a loop's body is given change from turn to turn."""
        is_body = self.target is not None and self.target.is_body
        return Profile(True if is_body and self.options.dynamic is None else self.options.dynamic)

    def _part(self, target: Target) -> Any:
        """The compiled function of what comes after a break."""
        part = Compilation(target.function, self.decorated, self.root, target)
        part.resumes = self.resumes
        self.root.parts.append(part)
        part.compiled.__name__ = target.function.__name__
        return part.compiled

    # -- a miss -----------------------------------------------------------------------------------------------------
    def on_miss(self, compiled: Any, args: tuple, kwargs: dict | None) -> Any:
        """Run a call that no entry serves: capture it if that may help, else just call the function.

        Gives a `Tail`, or PLAINLY, so that no frame of dynagraph's stands between the caller and the user's code: debuggers stop in
        each.
        """
        function = compiled.__wrapped__
        if self.full or replaced() is not None or control.is_disabled() or is_compiling():
            return _dispatch.PLAINLY
        if self._declines(control.current_stance()):
            return _dispatch.PLAINLY
        if tapes_alive() and not self.options.whole and holds_tracers((args, kwargs)):
            return _dispatch.Tail(call_on_tape, compiled, args, kwargs or {})
        try:
            values = _dispatch.bind(function, args, kwargs)
        except TypeError:
            return _dispatch.PLAINLY  # which raises the right error
        try:
            entry = self.entry_if_there_is_room(function, values)
        except _WouldRaise as refusal:
            return _dispatch.Tail(_raise_as_plain, str(refusal), partial(function, **kwargs) if kwargs else function, *args)
        if entry is None:
            return _dispatch.PLAINLY
        # another thread may have changed what the guards look at meanwhile
        plainly = _dispatch.Tail(partial(function, **kwargs) if kwargs else function, *args)
        return _dispatch.Tail(entry.run_or, values, plainly)

    def entry_if_there_is_room(self, function: types.FunctionType, values: tuple) -> Any | None:
        """`entry_for`, or None where the stack has no room for it.  A miss may be in a broken part's extent: the compiler itself is
        not watched.
        """
        try:
            if _frame_hook is None:
                return self.entry_for(function, values)
            return _frame_hook.call_unwatched(self.entry_for, function, values)
        except RecursionError:
            return None

    def _declines(self, stance: str) -> bool:
        """Whether the stance wants a call that no program serves to run eagerly."""
        return stance == "force_eager" or (stance == "eager_on_recompile" and bool(self.compiled.entries))

    # -- frames that a broken part enters ---------------------------------------------------------------------------
    def on_frame(self, function: types.FunctionType, code: types.CodeType, values: tuple) -> Any:
        """The code that the frame of a function called by a broken part shall run; None: its own."""
        if replaced() is not None:
            return None
        start = time.perf_counter()
        callee = self.callees.get(function)
        if callee is None or callee.code is not code:  # function.__code__ was replaced
            if sum(f.__code__ is code for f in self.callees) >= MAX_CLOSURES or len(self.callees) >= MAX_CALLEES:
                return _frame_hook.SKIP
            callee = self.callees[function] = Compilation(function, self.decorated, self.root)
            callee.resumes = Resumes(callee._part, self.root, self._is_choosy())
        entry = callee.entry_for(function, values)
        if entry is None:
            if len(callee.failures) >= 2:
                return _frame_hook.SKIP
            if callee.account.left() is None:  # compiling is never put off
                return None
            return min(REST * (time.perf_counter() - start), LONGEST_REST)  # an attempt may have taken long
        if callee.shim is None or callee.shim[0] is not code:
            callee.shim = code, call_instead(code)
        return callee.shim[1], partial(_call_or_plainly, entry, function)  # any program may find no memory

    def entry_for(self, function: types.FunctionType, values: tuple) -> Any | None:
        """An entry that serves these arguments, made now if need be; None: run eagerly."""
        if is_compiling():  # another greenlet of this thread, which may hold the lock: it goes on when this one waits for something
            return None
        _thread.compiling = True
        start = time.perf_counter()
        tries = False
        try:
            with self.lock:
                for entry in self.compiled.entries:  # another thread may have made it meanwhile
                    if entry.check(values) is None:
                        return entry
                self.root.account.settle(self.root.compiled.earned)
                if self.failures.shall_wait(values) or self._is_full(function, values):
                    self._rest(start)
                    return None
                left, kind = self.account.left(), types_of(values)
                tries = True
                restored = self._of_another_process(function, values, kind)
                if restored is not None:
                    return restored
                if left is not None and self.calls_loops:
                    left = max(left, loop_calls.WORTH)
                if kind in self.begun:
                    made = self._go_on(function, values, kind)
                    if made is not None:
                        return made
                    if kind in self.begun or self.failures.shall_wait(values):
                        self._rest(start)
                        return None
                if left is not None and left < self.needs.of(kind):
                    tries = False
                    self._put_off(function, kind, left)
                    self._rest(start, LEAST - left)  # other kinds may need less
                    return None
                self._note_misses(function, values)
                looked = time.perf_counter() - start
                made = self._try(function, values, kind, left)
                if made is None:
                    now = time.perf_counter()
                    self._rest(now - looked, 0.0 if kind in self.begun else LEAST + now - start - (left or 0.0))
                return made
        finally:
            _thread.compiling = False
            took = time.perf_counter() - start
            self.account.spend(took)
            if tries:  # a look belongs to the call's time: each call of a broken function may have some
                _dispatch.note_compiling(took)

    def _of_another_process(self, function: types.FunctionType, values: tuple, kind: Kind) -> Any | None:
        """An entry of a program that a process before this one has made and that serves this call."""
        if self.root is not self or self.target is not None or self.options.whole:
            return None
        saved = self.saved.get(kind)
        if saved is None:
            saved = self.saved[kind] = SavedPrograms(function, self.options, kind)
        if not saved.unread:
            return None

        def serves(found: Found) -> Any | None:
            entry = self._entry_of(found.captured, found.executable, function, [])  # programs that call loops are not kept
            failed = entry.check(values)
            for _ in found.captured.preparations:
                if failed is None or not _prepared(found.captured, failed, values, function.__closure__ or ()):
                    break
                failed = entry.check(values)
            if failed is not None:
                reason = found.captured.guards.explain(values, failed, function.__closure__ or ())
                _log.info("%s: a program of another process does not serve: %s", function.__qualname__, reason)
                return None
            self._add(entry, Program(found.captured, found.executable, 0.0, 0.0), kind, found.seconds)
            if found.executable is not None and found.executable.native is not None:
                self.stats.follow(found.executable.native.better)
            self.stats.restored += 1
            return entry

        start = time.perf_counter()
        try:
            with collector.paused():
                return saved.take(function, values, serves)
        except Exception as error:
            if is_of_signal(error):
                raise
            saved.unread.clear()
            self._note_failure(function, error, values)
            return None
        finally:
            self.stats.compile_seconds += time.perf_counter() - start

    def _rest(self, start: float, seconds: float = 0.0) -> None:
        """Leave calls that no entry serves alone for some time: a look at each, such as began at `start`, would cost too much."""
        if self.account.left() is not None:
            looked = time.perf_counter() - start
            self.compiled.put_off(min(max(seconds, REST * looked), LONGEST_REST))

    def _put_off(self, function: types.FunctionType, kind: Kind, left: float) -> None:
        """Compiling has to wait until plain calls have earned what it needs."""
        if self.needs.wait(kind):
            self.stats.put_off += 1
            self._warn_of_budget(function, self.needs.of(kind) - left)

    def _note_deadline(self, function: types.FunctionType, kind: Kind, seconds: float, given: float) -> None:
        """`given`: to an attempt that took so many `seconds`, fewer where it could be foreseen that it would not end in time."""
        if kind in self.begun:
            self.stats.put_off += 1
            self.stats.breaks[Break("COMPILER_AT_WORK", None, f"after {seconds:.2g} s").line] += 1
            return
        self.needs.exceeded(kind, max(seconds, given))
        self.stats.breaks[Break("COMPILE_BUDGET", None, f"after {seconds:.2g} s").line] += 1
        self._put_off(function, kind, (self.account.left() or 0.0) - seconds)

    def _warn_of_budget(self, function: types.FunctionType, missing: float) -> None:
        if self.root.warned:
            return
        self.root.warned = True
        warn_caller(
            f"{function.__qualname__}: compiling would cost more than its calls have taken so far, and is put off until they have "
            f"run eagerly for {missing:.2f} s more. To lift the budget: mode='max', or dg.config.compile_budget = None.",
            CompileBudgetWarning,
        )

    def _go_on(self, function: types.FunctionType, values: tuple, kind: Kind) -> Any | None:
        """The entry of an attempt whose deadline has passed, if the C compiler has ended and it serves this call."""
        attempt = self.begun[kind]
        is_same = attempt.code is function.__code__
        if is_same and not attempt.is_ready():
            return None
        del self.begun[kind]

        def finished() -> Any | None:
            with contextlib.suppress(_Changed):  # since the capture
                return self._finish(attempt, function, values, kind)
            return None

        attempt.late = True
        self.account.spend(attempt.background)
        entry = self._guarded(function, values, kind, None, finished) if is_same else None
        return entry if entry is not None and entry.check(values) is None else None

    def _try(self, function: types.FunctionType, values: tuple, kind: Kind, left: float | None) -> Any | None:
        return self._guarded(function, values, kind, left, lambda: self._compile(function, values, kind))

    def _guarded(
        self, function: types.FunctionType, values: tuple, kind: Kind, left: float | None, compile: Callable[[], Any]
    ) -> Any | None:
        """The entry that `compile` makes within so many seconds; None where it makes none, with the reason remembered."""
        start = time.perf_counter()
        try:
            with deadline.within(left):
                return compile()
        except deadline.OutOfTime:
            self._note_deadline(function, kind, time.perf_counter() - start, left or 0.0)
        except Break as stop:
            if not self._fills_caches(stop, kind):
                self._note_break(function, bare(stop), values)
        except RecursionError:  # the caller's stack is nearly full
            self._note_break(function, Break("STACK_FULL"), values)
        except Exception as error:
            if is_of_signal(error):
                raise
            self._note_failure(function, error, values)
        finally:
            self.stats.compile_seconds += time.perf_counter() - start
        return None

    def _compile(self, function: types.FunctionType, values: tuple, kind: Kind) -> Any:
        """An entry; None where what the capture looks at goes on changing, by a signal's handler, a finalizer, another thread."""
        said: set[str] = set()
        for _ in range(MAX_CHANGES):
            try:
                return self._compile_once(function, values, kind)
            except _Changed as change:
                if str(change) in said:  # the same each time: nothing has changed, it is a bug
                    raise
                said.add(str(change))
        _log.info("%s runs eagerly: %s", function.__qualname__, said.pop())
        self._remember(values)
        return None

    def _compile_once(self, function: types.FunctionType, values: tuple, kind: Kind) -> Any:
        start = time.perf_counter()
        with collector.paused():
            captured = self._learning_capture(function, values, kind)
            captured_at = time.perf_counter()
            _check_numbers(captured)
            for code in loop_calls.codes_of(captured.graph):
                code.begin()
            executable = self.backend(captured.graph) if captured.has_operations else None
            call = captured.loop
            loop = self.compile_loop(call.loop.region) if call is not None and self.compile_loop is not None else None
            attempt = Attempt(function.__code__, captured, executable, loop, captured_at - start, time.perf_counter() - start)
            saved = self.saved.get(kind)
            if saved is not None:  # written while the C compiler works, and kept once it has been seen to serve
                attempt.image = saved.written(function, captured, executable, attempt.seconds)
        attempt.seconds = time.perf_counter() - start
        try:
            return self._finish(attempt, function, values, kind)
        except deadline.OutOfTime:
            self.begun[kind] = attempt
            raise

    def _learning_capture(self, function: types.FunctionType, values: tuple, kind: Kind) -> Captured:
        """A capture that goes on with what earlier ones have learnt of loops, and leaves it to later ones if its deadline comes."""
        learned = self.learned.pop(kind, {})
        try:
            try:
                captured = self._capture(function, values, learned, COLD)
            except Break as stop:
                if stop.reason.name not in COLD or self.filled[kind] < MOST_FILLS:
                    raise
                return self._capture(function, values, learned, frozenset())  # filling them has not helped
            del self.filled[kind]  # it has
            return captured
        except deadline.OutOfTime:
            self.learned[kind] = learned
            raise

    def _fills_caches(self, stop: Break, kind: Kind) -> bool:
        """Whether a call shall run plainly: it fills caches of functions that the capture could not pass, and the next one may."""
        if stop.reason.name not in COLD or self.filled[kind] == MOST_FILLS:
            return False
        self.filled[kind] += 1
        return True

    def _capture(
        self, function: types.FunctionType, values: tuple, learned: dict[int, Any], gives_up_at: frozenset[str]
    ) -> Captured:
        return capture(
            self.target or function,
            values,
            profile=self.profile,
            resumes=None if self.options.fullgraph or self.options.whole else self.resumes,
            run_watched=None if _frame_hook is None else _frame_hook.call_watched,
            native_loops=self.compile_loop is not None,
            compile_loop=self.compile_loop_in_graph,
            device=self.options.device,
            learned=learned,
            options=self.options,
            gives_up_at=gives_up_at,
        )

    def _finish(self, attempt: Attempt, function: types.FunctionType, values: tuple, kind: Kind) -> Any:
        """The entry, as soon as the C compiler has made what it calls."""
        start = time.perf_counter()
        executable = attempt.executable
        try:
            captured = self._with_native_loop(attempt.captured, attempt.loop)
            codes = loop_calls.codes_of(captured.graph)
            for code in codes:
                code.finish()
                self.stats.follow(code.begun.better)
            if executable is not None and executable.native is not None:
                self.stats.follow(executable.native.better)
            self.calls_loops |= bool(codes)
            entry = self._entry_of(captured, executable, function, codes)
        finally:
            attempt.seconds += time.perf_counter() - start
        failed = entry.check(values)
        if failed is not None and not attempt.late:  # it may serve calls like the one that it was made for
            raise _guard_break(captured, values, failed)
        changed = captured.guards.changed_class()
        if changed is not None:
            raise _Changed(f"class {changed.__name__} was changed while its attributes were looked at")
        if captured.stop is not None:
            self.stats.breaks[captured.stop.line] += 1
            _log.info("%s breaks: %s", function.__qualname__, captured.stop)
        if captured.not_joined:
            self.stats.not_joined[captured.not_joined] += 1
        self.stats.compiles += 1
        program = Program(captured, executable, attempt.capture_seconds, attempt.seconds - attempt.capture_seconds)
        self._add(entry, program, kind, attempt.seconds + attempt.background)
        _log.info("%s: compiled in %.1f ms", function.__qualname__, 1e3 * attempt.seconds)
        saved = self.saved.get(kind)
        if saved is not None:
            reason = saved.keep(attempt.image, attempt.seconds)
            if reason:
                _log.info("%s: the program is not kept for other processes: %s", function.__qualname__, reason)
        return entry

    def _entry_of(
        self, captured: Captured, executable: Executable | None, function: types.FunctionType, codes: list[loop_calls.Code]
    ) -> Any:
        """The dispatcher's entry of a program, which calls these loops."""
        # of calls within one another most are so short that they would decide for the others
        recursive = captured.loop is not None and bool(captured.loop.loop.region.functions)
        # and of calls that are one node of the autograd graph backward counts, too
        measured = not codes and not recursive and not captured.joined and self._is_measured(executable)
        unasked = UNASKED_CALLS if measured and not self.options.fullgraph else 0
        return make_entry(captured, executable, function.__closure__, measured, unasked)

    def _add(self, entry: Any, program: Program, kind: Kind, seconds: float) -> None:
        """Have calls served by a program, which took so many seconds to make."""
        self.programs.append(program)
        self.compiled.add_entry(entry)
        self.captures[entry] = program.captured
        self.root.compiled.last_graph = program.captured.graph
        self.needs.made(kind, entry, seconds)

    def _with_native_loop(self, captured: Captured, code: CompiledRegion | None) -> Captured:
        """The capture, with machine code for the loop at its end."""
        call = captured.loop
        if call is None or code is None:
            return captured
        rows, exits = tuple(call.loop.rows), tuple(call.loop.exits)
        native = _dispatch.NativeLoop(
            code.address, code.keepalive, rows, code.n_slots, exits, call.make_target, call.otherwise,
            not call.loop.region.holds_gil, tuple(call.loop.calls_out), code.better,
        )
        self.stats.follow(code.better)
        self.stats.native_loops.append(lambda: (side_exits(call.loop, native.exits_taken), calls_out(call.loop, native.calls_made)))
        return replace(captured, result=call.in_recipe(captured.result, native))

    def _is_choosy(self) -> bool:
        return config.stay_eager and self.options.measured

    def _is_measured(self, executable: Executable | None) -> bool:
        """Whether calls that the program could serve go the faster way."""
        if not self._is_choosy() or self is not self.root:
            return False
        # the time of kernels passes on the device: that of the call does not tell
        return executable is None or not (executable.checked or executable.launcher is not None)

    def _note_misses(self, function: types.FunctionType, values: tuple) -> None:
        """Remember why the program that came closest does not serve a call."""
        failed = [(entry.check(values), captured) for entry, captured in self.captures.items()]
        if not failed:
            return
        index, captured = max(failed, key=lambda pair: pair[0] or 0)
        line = captured.guards.explain(values, index or 0, function.__closure__ or ())
        self.decorated.misses.append(f"{function.__qualname__}: {line}")
        if control.current_stance() == "fail_on_recompile" and not self.options.unasked:
            raise CaptureError(f"{function.__qualname__} would be compiled again, under dg.stance('fail_on_recompile'): {line}")
        _log.info("recompiling %s: guard failed\n  %s", function.__qualname__, line)

    # -- what goes wrong --------------------------------------------------------------------------------------------
    def _note_break(self, function: types.FunctionType, stop: Break, values: tuple) -> None:
        if self is self.root or stop.reason.name != "NOTHING_TO_COMPILE":  # a part without arrays is no news
            self.stats.breaks[stop.line] += 1
        self._remember(values)
        _log.info("%s runs eagerly: %s", function.__qualname__, stop)
        # a call without array operations is whole as it is
        if self.options.fullgraph and stop.reason.name != "NOTHING_TO_COMPILE":
            kind_of_error = _WouldRaise if stop.reason.raises else CaptureError
            raise kind_of_error(f"{function.__qualname__}: {stop}") from None

    def _note_failure(self, function: types.FunctionType, error: Exception, values: tuple) -> None:
        if WORK.ended:  # it was stopped, as the process ends
            return
        self.stats.fallbacks += 1
        self.stats.last_error = _without_frames(error)
        self._remember(values)
        if self.options.fullgraph or config.strict:
            raise error
        _log.warning("%s runs eagerly: the compiler failed", function.__qualname__, exc_info=error)

    def _remember(self, values: tuple) -> None:
        if not self.options.fullgraph:
            self.failures.remember(values)

    def _is_full(self, function: types.FunctionType, values: tuple) -> bool:
        if self.target is not None and len(self.compiled.entries) >= MOST_WIDE and any(map(_is_wide, values)):
            return True  # what comes after an exit of a native loop: each number has a program of its own
        if self._is_in_vain():
            self.full = True
            return True
        if len(self.compiled.entries) < config.entry_limit:
            return False
        self.full = True
        if self.options.unasked:
            return True
        warn_caller(
            f"{function.__qualname__} has {config.entry_limit} programs for as many kinds of arguments; further kinds run "
            "eagerly. Pass dynamic=True if sizes vary, pass what changes as an array, or raise dg.config.entry_limit.",
            RecompileLimitWarning,
        )
        return True

    def _is_in_vain(self) -> bool:
        """Whether one attempt after the other gave nothing that served a later call: of what comes after a break, or is called
        there, which a loop may come to at each turn.
        """
        if self is self.root or not self._is_choosy():
            return False
        hits = sum(entry.hits for entry in self.compiled.entries)
        self.in_vain = self.in_vain + 1 if hits <= self.hits else 0
        self.hits = hits
        return self.in_vain > MOST_IN_VAIN

    def reset(self) -> None:
        """Forget all programs and what was learnt about breaks."""
        with self.lock:
            self.compiled.clear()
            self.failures.clear()
            self.needs = Needs()
            self.begun.clear()
            self.programs.clear()
            self.stats.native_loops.clear()
            self.stats.tiers.clear()
            self.captures.clear()
            self.decorated.misses.clear()
            self.profile = self._new_profile()
            self.full = False
            self.in_vain = 0
        for inner in (*self.parts, *self.callees.values()):
            if inner is not self:
                inner.reset()


def _is_wide(value: Any) -> bool:
    return type(value) is int and not -(2**63) <= value < 2**63


def _check_numbers(captured: Captured) -> None:
    """Raise where the dispatcher has no room."""
    for what, n, most in (
        ("arrays and numbers are taken", captured.n_inputs, _dispatch.MAX_ARRAYS),
        ("arrays and numbers are given back", len(captured.outputs), _dispatch.MAX_ARRAYS),
        ("sizes and ints change", captured.n_symbols, _dispatch.MAX_SYMBOLS),
        ("objects are looked at", captured.guards.n_registers, _dispatch.MAX_REGISTERS),
    ):
        if n > most:
            raise Break("TOO_MANY_VALUES", None, f"{n} {what}; at most {most} are possible")


def _prepared(captured: Captured, failed: int, values: tuple, closure: tuple[Any, ...]) -> bool:
    """Whether a guard fails on what a preparation of the program makes, and all before it hold: it is made then."""
    found = captured.guards.made_by(failed, captured.preparations)
    for k in found:
        preparation = captured.preparations[k]
        preparation.function(preparation.source.now(values, closure), *preparation.args)
    return bool(found)


class _WouldRaise(CaptureError):
    """Under ``fullgraph=True``: the program itself raises here."""


def _raise_as_plain(refusal: str, plain: Any, *args: Any) -> Any:
    """Have the plain run raise the program's own exception, which says more than that there is no graph."""
    plain(*args)
    raise CaptureError(refusal)  # it did not


def _call_or_plainly(entry: Any, function: types.FunctionType, values: tuple[Any, ...]) -> Any:
    """An entry's program, or the function where the program bails out."""
    return entry.call_or(values, _dispatch.Tail(_call_with, function, values))


def _call_with(function: types.FunctionType, values: tuple[Any, ...]) -> Any:
    """Call a function with its bound parameters, in the order of ``co_varnames``."""
    code = function.__code__
    n, n_named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    named = dict(zip(code.co_varnames[n:n_named], values[n:n_named]))
    rest = list(values[n_named:])
    more = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else ()
    if code.co_flags & inspect.CO_VARKEYWORDS:
        named.update(rest.pop(0))
    return function(*values[:n], *more, **named)


def _without_frames(error: Exception) -> Exception:
    """A copy to keep: it says what the traceback said, and holds none of the frames, whose variables are the call's arguments."""
    text = "".join(traceback.format_exception(error))
    try:
        kept = copy.copy(error)
    except Exception:  # its class cannot be copied
        kept = CompilerError(f"{type(error).__name__}: {error}")
    kept.__traceback__ = kept.__cause__ = kept.__context__ = None
    kept.add_note(text.rstrip())
    return kept


class _Changed(AssertionError):
    """A guard does not hold on the frame that made it: a bug, unless what it guards has changed since."""


def _guard_break(captured: Captured, values: tuple, failed: int) -> Exception:
    """Why a guard does not hold on the frame that made it, where the floating-point error state may ask for errors."""
    if captured.guards.program()[failed][0] == "errstate":
        return Break("FLOATING_POINT_ERRORS", None, "np.errstate asks for more than warnings")
    return _Changed(f"a new guard does not hold on its own frame: {captured.guards.explain(values, failed)}")
