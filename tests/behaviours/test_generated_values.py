"""Random programs over every dtype, layout and kind of scalar, called again with other arguments and after changes of state.

``one(seed)`` is a program and its calls; ``python -m tests.behaviours.test_generated_values SEED`` shows a failing one.
"""

from __future__ import annotations

import random
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests import sampling
from tests.doors.test_result_layouts import LAYOUTS, seen, unaligned

PROGRAMS, CHUNK = 200, 50
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "complex64",
    "complex128",
]  # fmt: skip
NUMBERS = [
    0, 1, -1, 2, 3, 7, -8, 255, 2**31, 2**63, -(2**63), 2**70, 0.0, -0.0, 0.5, -1.5, 2.0, 1e300, float("inf"), 1j, -2 + 0.5j,
    True, False,
]  # fmt: skip
SMALL = [n for n in NUMBERS if abs(n) < 1000]
BINARY = [
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "{a} // {b}", "{a} % {b}", "{a} ** 2", "{a} == {b}", "{a} < {b}",
    "{a} >= {b}", "np.maximum({a}, {b})", "np.where({a} == {b}, {a}, {b})", "np.add({b}, {a})", "{a} & {b}", "{a} | {b}",
    "np.copysign({a}, {b})", "np.dot({a}, {b})", "np.minimum({b}, {a})", "{a} != {b}", "0.0 - {a}", "1j * {a}",
    "sum([{a}, {b}])", "np.divide({a}, {b})",
]  # fmt: skip
UNARY = [
    "-{a}", "abs({a})", "{a}.T", "{a}[::-1]", "{a}[..., :2]", "np.sqrt({a})", "np.round({a}, 1)", "{a}.real", "{a}.imag",
    "{a}.sum()", "{a}.max(axis=-1)", "{a}.astype(np.float32)", "np.clip({a}, 0, 1)", "{a}.copy()", "np.cumsum({a}, axis=0)",
    "{a}.mean(axis=0)", "np.asarray({a})", "np.float64({a})", "np.ravel({a})", "np.isreal({a})", "np.sign({a})", "{a}.dtype",
    "np.square({a})", "{a}.shape", "{a}.flags.writeable", "np.broadcast_to({a}, (2, *np.shape({a})))", "np.squeeze({a})",
    "np.unwrap({a})", "np.conj({a})", "np.exp({a} * 0)", "{a} * STATE.factor", "{a} + TABLE[0]", "helper({a})", "np.sort({a})",
    "np.stack([{a}, {a}])", "np.real({a})", "(lambda y: y * cell)({a})", "np.var({a})", "np.zeros_like({a})", "np.argmax({a})",
    "{a}.reshape(-1)", "np.logical_not({a})",
]  # fmt: skip
CHANGES: dict[str, Callable[[Any, random.Random], None]] = {
    "attribute": lambda names, rng: setattr(names["STATE"], "factor", rng.choice(SMALL)),
    "item": lambda names, rng: names["TABLE"].__setitem__(0, rng.choice(SMALL)),
    "function": lambda names, rng: names.__setitem__("helper", rng.choice([lambda y: y + 1, lambda y: y * 2, np.negative])),
    "cell": lambda names, rng: names["set_cell"](rng.choice(SMALL)),
    "class": lambda names, rng: setattr(type(names["STATE"]), "factor", rng.choice(SMALL)),
    "no attribute": lambda names, rng: vars(names["STATE"]).pop("factor", None),
}


def statements(rng: random.Random, n_arguments: int) -> list[str]:
    """Each in a try block of its own half of the time: what raises ends the program else."""
    names, lines = [f"a{k}" for k in range(n_arguments)], []
    for k in range(rng.randrange(2, 6)):
        a, b = rng.choice(names), rng.choice([*names, repr(rng.choice(SMALL))])
        if rng.random() < 0.08:
            lines.append(f"{a} += {b}")
            continue
        expression = rng.choice(BINARY + UNARY).format(a=a, b=b)
        lines.append(f"v{k} = {expression}")
        names.append(f"v{k}")
    return [*lines, f"return {', '.join(n for n in names if n[0] == 'v' or rng.random() < 0.3) or names[0]},"]


def module(lines: list[str], n_arguments: int) -> dict[str, Any]:
    """A namespace of its own with the function and the state that it reads."""
    body = "".join(f"        {line}\n" for line in lines)
    arguments = ", ".join(f"a{k}" for k in range(n_arguments))
    setter = "    def set_cell(value):\n        nonlocal cell\n        cell = value\n"
    source = f"def make():\n    cell = 2\n{setter}    def f({arguments}):\n{body}"
    names: dict[str, Any] = {"np": np, "STATE": type("State", (), {"factor": 2})(), "TABLE": [1.5], "helper": abs}
    exec(source + "    return f, set_cell\n", names)
    names["f"], names["set_cell"] = names["make"]()
    return names


def argument(rng: random.Random, seed: int, before: Any = None) -> Any:
    """An array of any dtype and layout, a NumPy scalar, a 0-d array or a Python number; often of the kind of the one before."""
    if before is not None and rng.random() < 0.6:
        kind = type(before)
        if kind in (int, float, complex, bool):
            return kind(rng.choice([n for n in SMALL if kind is complex or not isinstance(n, complex)]))
        if isinstance(before, np.generic):
            return before.dtype.type(rng.randrange(0, 9))
        if rng.random() < 0.5:
            with np.errstate(all="ignore"):
                return np.negative(before) if before.dtype.kind in "fc" else np.bitwise_xor(before, before.dtype.type(1))
    roll, dtype = rng.random(), rng.choice(DTYPES)
    if roll < 0.2:
        return rng.choice(NUMBERS)
    if roll < 0.35:
        return np.dtype(dtype).type(rng.choice([0, 1, 3, 7]))
    values = np.random.default_rng(seed).integers(-4 if dtype[0] not in "ub" else 0, 5, (4, 6)) * (0.5 if dtype[0] == "f" else 1)
    with np.errstate(all="ignore"):
        if dtype[0] == "c":
            values = values * (1 - 0.5j)
        return LAYOUTS[rng.choice(list(LAYOUTS))](values.astype(dtype))


def fresh(x: Any) -> Any:
    """The same array in memory of its own, which lies in the same way."""
    if not isinstance(x, np.ndarray) or 0 in x.strides or not x.flags.writeable:
        return x
    if not x.flags.aligned:
        return unaligned(x)
    low = sum((d - 1) * s for d, s in zip(x.shape, x.strides) if s < 0)
    high = sum((d - 1) * s for d, s in zip(x.shape, x.strides) if s > 0)
    made = np.ndarray(x.shape, x.dtype, np.zeros(high - low + x.itemsize + 8, np.uint8).data, -low, x.strides)
    made[...] = x
    return made


def observed(f: Callable, given: list[Any]) -> Any:
    given = [fresh(x) for x in given]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = f(*given)
        except Exception as error:  # whatever Python or NumPy raises
            return type(error), str(error), seen(given)
        return seen(shown(result)), seen(given)


def shown(x: Any) -> Any:
    """Scalars of dtypes that no test looks into by their text."""
    if isinstance(x, tuple):
        return tuple(map(shown, x))
    strange = isinstance(x, (np.ndarray, np.generic)) and x.dtype.char in "OgG"
    return repr(x) if strange or isinstance(x, (np.dtype, types.FunctionType)) else x


def one(seed: int) -> tuple[list[str], list[Any], str | None]:
    """The lines of a program, what its calls were given, and the difference, if any."""
    rng = random.Random(seed)
    n = rng.randrange(1, 4)
    lines = statements(rng, n)
    plain, theirs = module(lines, n), module(lines, n)
    compiled = dg.compile(theirs["f"], backend="reference", dynamic=rng.choice([None, None, True, False]))
    given: list[Any] = [None] * n
    history: list[Any] = []
    with dg.config.override(strict=True):
        for call in range(5):
            if call:
                change, at = rng.choice([None, *CHANGES]), rng.randrange(1 << 30)
                if change:
                    CHANGES[change](plain, random.Random(at))
                    CHANGES[change](theirs, random.Random(at))
                history.append(change)
            given = [argument(rng, seed + k, x) for k, x in enumerate(given)] if rng.random() < 0.8 or not call else given
            history.append(given)
            want, got = observed(plain["f"], given), observed(compiled, given)
            if got != want:
                return lines, history, f"call {call}:\n got {got}\nwant {want}"
    return lines, history, None


def report(seed: int) -> str:
    lines, history, found = one(seed)
    return f"seed {seed}\n" + "\n".join(lines) + f"\n{history[-1]}\n{found}"


@pytest.mark.parametrize("start", range(0, PROGRAMS, CHUNK))
def test_values_of_every_kind(start: int) -> None:
    failed = [seed for seed in range(start, start + CHUNK) if one(seed)[2] is not None]
    assert not failed, "\n\n".join(map(report, failed[:2]))


@pytest.mark.fuzz
def test_many_values_of_every_kind() -> None:
    first = random.SystemRandom().randrange(PROGRAMS, 1 << 40)
    failed = [seed for seed in range(first, first + sampling.programs) if one(seed)[2] is not None]
    print(f"{sampling.programs} programs from seed {first}")
    assert not failed, f"{len(failed)} of {sampling.programs}: {failed[:50]}\n\n" + "\n\n".join(map(report, failed[:3]))


if __name__ == "__main__":
    print(report(int(sys.argv[1])))
