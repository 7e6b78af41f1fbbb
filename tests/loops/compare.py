"""Plain and compiled calls of random loop programs, bit for bit.

    python -m tests.loops.compare SEED            # prints the program of a seed, and what differs
    python -m tests.loops.compare SEED END        # checks a range; "plain" besides: without compiling anything
    python -m tests.loops.compare SEED END exits  # only seeds of that profile; "short" besides: without calls of many turns

Compared: results (types, dtypes, bits; a NaN is a NaN), arguments and LOG after each call, what was printed, exceptions with their
texts and the lines of the program in their tracebacks.  One compiled function is called several times: CALLS.
"""

from __future__ import annotations

import linecache
import random
import struct
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np

import dynagraph as dg
from dynagraph.frontend.loops import calls_out, capture
from tests import statements
from tests.behaviours.harness import Outcome, observe
from tests.loops.generate import PROFILES, Program, from_seed
from tests.statements import Hang, limited

NO_END = "the plain calls take too long"
LONG_TURNS = 6000  # of the innermost loop in a long call
UNROLL_LIMIT = 40  # turns: what unrolls takes up to a minute to compile
FEW_TURNS = capture.FEW_TURNS  # in two thirds of the programs loops are native whatever few turns they have
SECONDS = 60.0  # for all calls of a program
KINDS_OF_CALLS = (0, 0, 1, 0, 2)  # calls of one number get arguments of the same kinds; 2: long ones, in some programs
FLOATS = [0.0, -0.0, 0.5, -1.5, 2.0, 0.1, 3.75, -7.25, 1e3]
ODD = [float("inf"), float("-inf"), float("nan"), 1e308, 5e-324, 1e16, -1e-3]
WIDE = [2**31 - 1, -(2**31), 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 10**25]
DTYPES = ["float32", "int64", "int32", "uint8", "complex128", "bool", "float16", "int8", "uint64", "int16", "complex64"]


# -- arguments ---------------------------------------------------------------------------------------------------------------------


class Arguments:
    """Of one call: `kinds` decides types, dtypes, layouts and what shares memory, `values` the rest."""

    def __init__(self, program: Program, call: int):
        kind = KINDS_OF_CALLS[call]
        self.kinds, self.values = random.Random(program.seed * 7 + kind), random.Random(program.seed * 31 + call)
        self.other = kind == 1
        self.tame = PROFILES[program.profile].risk < 0.1 and self.kinds.random() < 0.8
        if kind == 2:
            self.n = min(int(LONG_TURNS ** (1 / max(program.depth, 1))), 80 if {"A", "D"} & {*program.parameters} else LONG_TURNS)
        else:
            self.n = self.values.choice([3, 4, 5, 4, 5, 6, 2, 1, 0] if not self.tame else [3, 4, 5, 6])

    def all(self, names: list[str]) -> list[Any]:
        made: dict[str, Any] = {}
        for name in names:
            made[name] = self.shared(name, made) if self.kinds.random() < 0.12 else None
            if made[name] is None:
                made[name] = getattr(self, f"of_{name}")()
        return [made[name] for name in names]

    def shared(self, name: str, made: dict[str, Any]) -> Any:
        """A view of the memory of another argument, or that one itself."""
        roll = self.kinds.randrange(4)
        if name == "y" and "x" in made:
            x = made["x"]
            return [x, x if self.tame else x[1:], x[::-1], x if self.tame else x[: len(x) - 1]][roll]
        if name == "D" and "A" in made:
            a = made["A"]
            return [a, a.T, a[::-1], a[:, ::-1]][roll]
        if name == "A" and "x" in made and made["x"].size >= 4 and not self.tame:
            return np.lib.stride_tricks.as_strided(made["x"][:4], (2, 2), made["x"].strides * 2)
        return None

    def real(self) -> float:
        if not self.tame and self.values.random() < 0.15:
            return self.values.choice(ODD)
        return self.values.choice(FLOATS) if self.values.random() < 0.6 else self.values.gauss(0, 2)

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        dtype = "float64" if self.kinds.random() < (0.3 if self.other else 0.75) else self.kinds.choice(DTYPES)
        layout, size = self.kinds.random(), int(np.prod(shape))
        flat = (
            np.array([self.real() for _ in range(size)])
            if dtype[0] in "fc"
            else np.array([self.values.randint(-9, 20) for _ in range(size)])
        )
        with np.errstate(all="ignore"):
            x = flat.astype(dtype).reshape(shape)
        if layout < 0.6:
            pass
        elif layout < 0.7:
            x = np.asfortranarray(x)
        elif layout < 0.8:
            x = np.repeat(x, 2, axis=-1)[..., ::2]
        elif layout < 0.9:
            x = x[::-1].copy()[::-1]
        elif layout < 0.93:
            x.flags.writeable = False
        elif x.ndim == 2:
            x = np.ascontiguousarray(x.T).T
        return x

    def length(self) -> int:
        return (
            self.n
            if self.kinds.random() < (0.98 if self.tame else 0.9)
            else max(0, self.n + self.kinds.choice([-1, 1, 2, -self.n]))
        )

    def of_x(self) -> Any:
        return self.array((self.length(),))

    of_y = of_x

    def of_A(self) -> Any:
        return self.array((self.length(), self.length()))

    of_D = of_A

    def of_idx(self) -> Any:
        dtype = self.kinds.choice(["int64", "int64", "int64", "int32", "uint8", "int8"])
        low = 0 if dtype == "uint8" or self.kinds.random() < 0.5 else -self.n
        high = self.n - 1 if self.tame or self.values.random() < 0.7 else self.n + 1
        return np.array([self.values.randint(low, max(low, high)) for _ in range(self.length())], "int64").astype(dtype)

    def of_n(self) -> Any:
        return np.int64(self.n) if self.other and self.kinds.random() < 0.3 else self.n

    def of_m(self) -> Any:
        return self.values.randint(-1, 6)

    def of_p(self) -> Any:
        roll = self.kinds.random()
        if self.other and roll < 0.4:
            return self.kinds.choice([True, np.int64(self.values.randint(-9, 9)), np.uint8(250), np.int64(2**62), 1.5])
        return self.values.choice(WIDE) if roll < 0.3 or self.values.random() < 0.1 else self.values.randint(-20, 100)

    of_q = of_p

    def of_s(self) -> Any:
        roll = self.kinds.random()
        if self.other and roll < 0.5:
            return self.kinds.choice([self.values.randint(-5, 9), np.float64(self.real()), np.float32(0.5), True])
        return self.values.randint(-3, 7) if roll > 0.9 else self.real()

    of_r = of_s

    def of_t(self) -> Any:
        kind = self.kinds.choice(
            [np.float64, np.float64, np.float32, np.int64, np.int32, np.uint8, np.float16, float, np.complex128]
        )
        return kind(self.values.choice([0, 1, 2, 7, 0.5]))

    def of_flag(self) -> Any:
        flag = self.values.random() < 0.5
        return np.bool_(flag) if self.other and self.kinds.random() < 0.5 else flag

    def of_z(self) -> Any:
        z = complex(self.real(), self.real())
        return np.complex128(z) if self.kinds.random() < 0.2 else z

    def of_maybe(self) -> Any:
        return None if self.values.random() < 0.5 else self.real()

    def of_items(self) -> Any:
        return [self.values.randint(-3, 9) for _ in range(self.values.randint(0, 4))]


# -- comparing ---------------------------------------------------------------------------------------------------------------------


def bits(x: Any) -> Any:
    """What of a float or complex must be equal; zeros have signs, NaNs none."""
    if isinstance(x, complex):
        return bits(x.real), bits(x.imag)
    return "nan" if x != x else struct.pack("d", x)


def exact(x: np.ndarray) -> Any:
    """The same for the elements of an array."""
    if x.dtype.kind == "c":
        return exact(x.real), exact(x.imag)
    if x.dtype.kind == "f":
        x = np.where(np.isnan(x), np.array(np.nan, x.dtype), x)
    return x.tobytes()


def strides(x: np.ndarray) -> tuple:
    return tuple(s for s, d in zip(x.strides, x.shape) if d > 1) if x.size else ()


def unlike(expected: Any, got: Any) -> str | None:
    """How two values differ, or None."""
    if type(got) is not type(expected):
        return f"{got!r} ({type(got).__name__}) instead of {expected!r} ({type(expected).__name__})"
    same = True
    if isinstance(expected, (list, tuple)):
        if len(got) != len(expected):
            return f"{len(got)} items instead of {len(expected)}"
        parts = ((k, unlike(e, g)) for k, (e, g) in enumerate(zip(expected, got)))
        return next((f"item {k}: {text}" for k, text in parts if text is not None), None)
    if isinstance(expected, np.ndarray):
        described = [(x.dtype, x.shape, x.flags.writeable, strides(x)) for x in (expected, got)]
        if described[0] != described[1]:
            return f"array {described[1]} instead of {described[0]}"
        same = exact(expected) == exact(got)
    elif isinstance(expected, np.generic):
        same = exact(np.asarray(expected)) == exact(np.asarray(got))
    elif isinstance(expected, (float, complex)):
        same = bits(expected) == bits(got)
    else:
        same = expected == got
    return None if same else f"{got!r} instead of {expected!r}"


@dataclass
class Seen:
    """What one call did."""

    outcome: Outcome
    log: list[Any]
    shared: list[tuple[bool, ...]]  # which results lie in the memory of which arguments


def differs(expected: Seen, got: Seen) -> str | None:
    e, g = expected.outcome, got.outcome
    if e.error is not None or g.error is not None:
        # CPython 3.11 names another line once STORE_FAST and the LOAD_FAST after it have become one instruction
        if type(e.error) is not type(g.error) or str(e.error) != str(g.error):
            return f"raised {g.error!r} instead of {e.error!r}"
        if e.lines != g.lines and not (sys.version_info < (3, 12) and isinstance(e.error, UnboundLocalError)):
            return f"raised {g.error!r} at lines {g.lines} instead of {e.lines}"
    checks = [
        ("result", e.result, g.result), ("arguments", list(e.arguments[0]), list(g.arguments[0])), ("LOG", expected.log, got.log),
        ("printed", e.printed, g.printed), ("memory shared", expected.shared, got.shared),
    ]  # fmt: skip
    return next((f"{name}: {text}" for name, a, b in checks if (text := unlike(a, b)) is not None), None)


def see(f: Callable, arguments: tuple, log: list[Any], file: str) -> Seen:
    outcome = observe(f, arguments, {}, file)
    results = outcome.result if isinstance(outcome.result, tuple) else (outcome.result,)
    arrays = [x for x in arguments if isinstance(x, np.ndarray)]
    shared = [tuple(np.may_share_memory(r, x) for x in arrays) for r in results if isinstance(r, np.ndarray)]
    return Seen(outcome, list(log), shared)


def calls_of(program: Program) -> tuple[int, ...]:
    if program.only is not None:
        return program.only
    if program.seed % 4 == 0 and "fact(" not in program.source:  # recursion is not for long ones
        return (0, 1, 4)
    return (0, 1) if program.seed % 4 == 1 else (0, 1, 2, 3)


def without_long_calls(program: Program) -> Program:
    return replace(program, only=tuple(call for call in calls_of(program) if KINDS_OF_CALLS[call] != 2))


def outcomes(program: Program, wrap: Callable) -> Iterator[Seen]:
    names: dict[str, Any] = {"__name__": "generated"}
    exec(compile(program.source, program.filename, "exec"), names)
    f = wrap(names["f"])
    for call in calls_of(program):
        yield see(f, tuple(Arguments(program, call).all(program.parameters)), names["LOG"], program.filename)


@dataclass
class Counts:
    """What programs do, over many of them."""

    programs: int = 0
    calls: int = 0
    raised: Counter = field(default_factory=Counter)  # plain calls, by type of exception
    slow: int = 0  # programs whose plain calls take too long
    breaks: Counter = field(default_factory=Counter)  # by reason
    plain_seconds: float = 0.0
    compiled_seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.programs} programs, {self.calls} calls, {self.slow} too slow, plain {self.plain_seconds:.1f} s, compiled "
            f"{self.compiled_seconds:.1f} s, raised {dict(self.raised.most_common(8))}, breaks {dict(self.breaks.most_common(8))}"
        )


def difference(program: Program, counts: Counts | None = None, plain_only: bool = False) -> str | None:
    """What differs between plain and compiled calls, as a text; None: nothing."""
    linecache.cache[program.filename] = (len(program.source), None, program.source.splitlines(True), program.filename)
    counts = counts or Counts()
    compiled: list[Any] = []

    def wrap(f: Callable) -> Callable:
        # sizes and numbers are symbols from the first call on, or from the second one
        compiled.append(f if plain_only else dg.compile(f, dynamic=True if program.seed % 7 < 4 else None))
        return compiled[0]

    few_turns = 0 if program.seed % 3 else FEW_TURNS
    switches = dg.config.override(strict=True, unroll_limit=UNROLL_LIMIT, compile_budget=None, stay_eager=False)
    calls = mock.patch.object(calls_out, "LOST", calls_out.LOST if program.seed % 3 else 0)
    few = mock.patch.object(capture, "FEW_TURNS", few_turns)
    with warnings.catch_warnings(), switches, np.errstate(all="ignore"), few, calls:
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        try:
            with limited(2.0):
                expected = list(outcomes(program, lambda f: f))
        except Hang:
            counts.slow += 1
            return None
        counts.plain_seconds += time.perf_counter() - start
        counts.programs, counts.calls = counts.programs + 1, counts.calls + len(expected)
        counts.raised.update(type(seen.outcome.error).__name__ for seen in expected if seen.outcome.error is not None)
        start = time.perf_counter()
        try:
            with limited(SECONDS):
                for call, wanted, got in zip(calls_of(program), expected, outcomes(program, wrap)):
                    text = differs(wanted, got)
                    if text is not None:
                        return f"call {call}: {text}"
        except Hang:
            return f"more than {SECONDS:g} s compiled"
        counts.compiled_seconds += time.perf_counter() - start
    if not plain_only:
        counts.breaks.update(reason.partition("\n")[0].partition(": ")[2][:60] for reason in compiled[0].stats.breaks)
        if compiled[0].stats.fallbacks:
            return f"fallback: {compiled[0].stats.last_error!r}"
    return None


# -- showing -----------------------------------------------------------------------------------------------------------------------


def simpler(program: Program) -> Iterator[Program]:
    """With fewer calls."""
    calls = calls_of(program)
    if len(calls) > 1:
        for dropped in range(len(calls)):
            yield replace(program, only=calls[:dropped] + calls[dropped + 1 :])


def reduced(program: Program, fails: Callable[[Program], bool] | None = None, seconds: float = 30.0) -> Program:
    return statements.reduced(program, fails or (lambda p: difference(p) is not None), seconds, simpler)


def report(program: Program, shrink: float = 30.0) -> str:
    """A failing program, made smaller, for people."""
    small = reduced(program, seconds=shrink)
    given = "\n".join(
        f"call {call}: "
        + ", ".join(f"{name}={value!r}" for name, value in zip(small.parameters, Arguments(small, call).all(small.parameters)))
        for call in calls_of(small)
    )
    return (
        f"seed {program.seed} (python -m tests.loops.compare {program.seed}), profile {program.profile}:\n\n{small.source}\n"
        f"{given}\n"
        f"{difference(small) or 'does not repeat: ' + str(difference(program))}"
    )


def main() -> int:
    seeds = [int(a) for a in sys.argv[1:] if a.isdigit()]
    profiles = [a for a in sys.argv[1:] if a in PROFILES] or list(PROFILES)
    plain_only = "plain" in sys.argv
    counts, failed = Counts(), []
    if len(seeds) == 1:
        print(from_seed(seeds[0]).source, flush=True)
    for seed in range(seeds[0], seeds[-1] + (len(seeds) == 1)):
        program = from_seed(seed)
        if program.profile not in profiles:
            continue
        if "short" in sys.argv:
            program = without_long_calls(program)
        print(f"\r{seed}", end="", file=sys.stderr, flush=True)
        if difference(program, counts, plain_only) is not None:
            failed.append(seed)
            print(f"\n{report(program)}", flush=True)
    print(f"\n{len(failed)} differ: {failed}; {counts}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
