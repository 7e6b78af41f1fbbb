"""Functions of arrays made at random, whose every line runs: what they are called with, and as what they are written.

`program(choose)` makes one by choices out of sequences, whoever makes them: hypothesis, or a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Choose = Callable[[Sequence[Any]], Any]
Sizes = dict[str, int]

DTYPES = (
    "float64", "float64", "float32", "float32", "int64", "int32", "bool", "uint8", "int16", "float16", "complex128", "uint32",
)  # fmt: skip
SHAPES = ("", "A", "A", "AB", "AB", "B", "A1", "1B", "ABC", "CB", "BA", "1", "0", "A0")
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 70)
LARGE = (150, 300, 1025)
LAYOUTS = ("C", "C", "C", "Fortran", "steps", "backwards", "offset", "part", "broadcast")
ALIASES = (None, None, None, None, "same", "behind", "before", "turned", "backwards")
NUMBERS = (2, -3, 0.5, np.float32(1.5), np.float64(-0.25), np.int64(3), True, 1 + 2j)
SPECIAL = (np.nan, np.inf, -np.inf, -0.0)
MOST_LINES = 9
MOST_VALUES = 20000
LARGEST = 1e5  # errors of rounding are measured by the largest value

# What a line needs: exact operands, as it is not continuous; operands with an order.  What it gives: a rounded result.
EXACT, ORDER, ROUNDS = "exact", "order", "rounds"

VALUES: tuple[tuple[str, str], ...] = (
    ("-{a}", ""), ("abs({a})", ""), ("{a} * 2", ""), ("{a} + 1", ""), ("1.5 - {a}", ""), ("{a} * 0.5", ""),
    ("xp.sqrt(abs({a}))", ROUNDS), ("xp.exp({a} * 0.1)", ROUNDS), ("xp.tanh({a})", ROUNDS), ("xp.sin({a})", ROUNDS),
    ("xp.sign({a})", EXACT + ORDER), ("xp.floor({a})", EXACT + ORDER), ("{a}.astype('{t}')", EXACT + ORDER), ("xp.isnan({a})", ""),
    ("~({a} > 0)", EXACT + ORDER), ("{a}.real", ""), ("{a}.conj()", ""), ("xp.square({a})", ""), ("{a} ** 2", ""),
    ("xp.logical_not({a})", EXACT), ("{a} % 3", EXACT + ORDER), ("{a} // 2", EXACT + ORDER), ("xp.clip({a}, -1, 1)", ORDER),
    ("{a} + {b}", ""), ("{a} - {b}", ""), ("{a} * {b}", ""), ("xp.maximum({a}, {b})", ORDER), ("xp.minimum({a}, {b})", ORDER),
    ("xp.where({a} > {b}, {a}, {b})", EXACT + ORDER), ("{a} > {b}", EXACT + ORDER), ("{a} == {b}", EXACT), ("{a} & {b}", EXACT),
    ("{a} | {b}", EXACT), ("{a} ^ {b}", EXACT), ("xp.fmax({a}, {b})", ORDER), ("{a} / (abs({b}) + 1)", ROUNDS),
    ("{a} / {b}", EXACT + ROUNDS), ("xp.hypot({a}, {b})", ROUNDS), ("xp.where({a} > 0, {b}, 0)", EXACT + ORDER), ("{a} + {n}", ""),
    ("{a} * {n}", ""), ("xp.where({a} != 0, {a}, {n})", EXACT), ("{a} - {a}", ""), ("xp.copysign({a}, {b})", EXACT + ORDER),
    ("{a}.sum(axis={x}, keepdims={k})", ""), ("{a}.max(axis={x}, keepdims={k})", ORDER),
    ("{a}.min(axis={x}, keepdims={k})", ORDER), ("xp.prod({a}, axis={x})", ROUNDS), ("{a}.mean(axis={x}, keepdims={k})", ROUNDS),
    ("{a}.any(axis={x})", EXACT), ("{a}.all(axis={x}, keepdims={k})", EXACT), ("xp.argmax({a}, axis={o})", EXACT + ORDER),
    ("xp.argmin({a}, axis={o})", EXACT + ORDER), ("{a}.var(axis={x})", ROUNDS), ("xp.count_nonzero({a}, axis={x})", EXACT),
    ("xp.cumsum({a}, axis={o})", ""), ("xp.cumprod({a}, axis={o})", ROUNDS), ("xp.diff({a}, axis={i})", ""),
    ("{a}.sum()", ""), ("{a}.sum(axis=-1)", ""), ("{a}.sum(axis=0)", ""), ("{a}.sum(dtype='float32', axis={x})", ROUNDS),
    ("{a}.T", ""), ("{a}.reshape(-1)", ""), ("{a}.reshape({a}.shape[0], -1)", ""), ("xp.transpose({a}, {p})", ""), ("{a}[{s}]", ""),
    ("{a}[{s}]", ""), ("{a}[{s}]", ""), ("{a}[::-1]", ""), ("{a}[..., ::-1]", ""), ("{a}[None]", ""), ("{a}[..., None]", ""),
    ("xp.squeeze({a})", ""), ("xp.broadcast_to({a}, (2, *{a}.shape))", ""), ("xp.concatenate([{a}, {b}], axis={i})", ""),
    ("xp.stack([{a}, {a} * 2], axis={i})", ""), ("xp.roll({a}, {r}, axis={o})", ""), ("xp.tile({a}, 2)", ""),
    ("xp.repeat({a}, 2, axis={o})", ""), ("xp.swapaxes({a}, 0, -1)", ""), ("{a}[{j}]", ""), ("xp.take({a}, {j}, axis={i})", ""),
    ("{a}[:, {j}]", ""), ("{a}[{j}, {j}]", ""), ("{a}[{j}[:, None], {j}]", ""), ("xp.tril({a})", ""), ("xp.diagonal({a})", ""),
    ("{a}.copy()", ""), ("{a} @ {b}", ""), ("{a} @ {a}.T", ""), ("xp.sort({a}, axis={i})", ORDER), ("{a}.flatten()", ""),
    ("xp.pad({a}, 1)", ""), ("xp.outer({a}, {b})", ""), ("xp.zeros_like({a})", ""), ("xp.arange({a}.shape[0])", ""),
    ("xp.full({a}.shape, 2.0)", ""), ("{a} * {a}.shape[0]", ""), ("{a} - {a}.mean(axis=-1, keepdims=True)", ROUNDS),
    ("{a}", ""),
    ("xp.expand_dims({a}, 1)", ""), ("xp.where(xp.arange({a}.shape[0]) > 1, {a}, {b})", ""), ("{a}[{a} > 0]", EXACT + ORDER),
    ("np.add({a}, {b})", ""), ("np.sum({a}, axis={x})", ""), ("xp.nan_to_num({a})", ""),
    ("xp.exp({a} - {a}.max())", ORDER + ROUNDS),
)  # fmt: skip
WRITES: tuple[tuple[str, str], ...] = (
    ("{a} += {b}", ""), ("{a} -= {b}", ""), ("{a} *= 2", ""), ("{a}[{s}] = {b}[{s}]", ""), ("{a}[1:] = {a}[:-1]", ""),
    ("{a}[:-1] = {a}[1:]", ""), ("{a}[::-1] = {a}", ""), ("{a}[...] = {b}", ""), ("{a}[{j}] = {b}[{j}]", ""), ("{a}[{j}] += 1", ""),
    ("{a}[{a} > 0] = 0", EXACT + ORDER), ("{a}.fill(2)", ""), ("xp.add({a}, {b}, out={a})", ""), ("{a}[{s}] += {b}", ""),
    ("{a}.T[...] = {b}", ""), ("{a}[0] = {a}[-1]", ""), ("{a}[{s}] = 3", ""), ("{a}[1:] += {a}[:-1]", ""), ("{a}[{j}] = 1", ""),
    ("xp.multiply({a}[1:], {a}[:-1], out={a}[:-1])", ""), ("{a} -= {a}.sum(axis={x})", ""), ("{a}[{j}] = {a}[{j}][::-1]", ""),
    ("{a}[:] = {a}.T", ""), ("{a}[..., 0] = {n}", ""),
)  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """An array of an argument: `shape` names the sizes of its axes; `alias`: what it is to the argument `of`, if anything."""

    name: str
    shape: str
    dtype: str
    layout: str
    alias: str | None = None
    of: int = 0
    special: bool = False


@dataclass(frozen=True)
class Program:
    """A function's text, and the bindings of the names of sizes that it is called with, the first of which runs to its end."""

    arguments: tuple[Argument, ...]
    number: Any  # the last argument
    lines: tuple[str, ...]
    results: tuple[str, ...]
    sizes: tuple[Sizes, ...]
    rounded: frozenset[str] = frozenset()

    @property
    def source(self) -> str:
        names = ", ".join((*(a.name for a in self.arguments), "j", "n"))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def f({names}):\n{body}    return {', '.join(self.results)},\n"

    def function(self, xp: Any) -> Callable[..., Any]:
        scope: dict[str, Any] = {"xp": xp, "np": np}
        exec(self.source, scope)
        return scope["f"]  # type: ignore[no-any-return]

    def make(self, sizes: Sizes, seed: int) -> list[Any]:
        """What the function is called with, as NumPy arrays: aliases share memory."""
        made: list[Any] = []
        for k, argument in enumerate(self.arguments):
            made.append(_array(argument, made, sizes, np.random.default_rng([seed, k])))
        places = max(1, min((n for n in sizes.values() if n), default=1))
        made.append(np.random.default_rng(seed).integers(0, places, min(places, 6)))
        return [*made, self.number]

    def describe(self) -> str:
        return f"{self.source}{self.sizes} n={self.number!r}\n" + "\n".join(map(str, self.arguments))


def program(choose: Choose) -> Program:
    """A random function and its calls."""
    letters = {letter: choose(SIZES) for letter in "ABC"}
    if choose(range(6)) == 0:
        letters[choose("AB")] = choose(LARGE)
    several = choose(range(3)) == 0
    other = {letter: choose(SIZES) if choose((True, False)) else n for letter, n in letters.items()} if several else {}
    arguments = tuple(_argument(choose, "xyz"[k], k) for k in range(choose((1, 2, 2, 3))))
    empty = Program(arguments, choose(NUMBERS), (), ("x",), (letters, *([other] if other else [])))
    return _filled(choose, empty)


def _argument(choose: Choose, name: str, k: int) -> Argument:
    alias = choose(ALIASES) if k else None
    special = choose(range(4)) == 0
    return Argument(name, choose(SHAPES), choose(DTYPES), choose(LAYOUTS), alias, choose(range(k)) if k else 0, special)


def _filled(choose: Choose, empty: Program) -> Program:
    """The program with lines that run, on the values that they run on; those that do not are left out."""
    arguments = empty.arguments
    values = dict(zip([*(a.name for a in arguments), "j", "n"], empty.make(empty.sizes[0], 0)))
    rounded: set[str] = set()
    live, lines = [a.name for a in arguments], []
    for _ in range(choose(range(1, MOST_LINES))):
        text, needs = choose(WRITES if choose(range(3)) == 0 else VALUES)
        a, b = choose(live[-3:] if choose((True, False)) else live), choose([*live, *live, "n"])
        line = text.format(a=a, b=b, n="n", j="j", **_parameters(choose, values[a]))
        writes = (text, needs) in WRITES
        used = {name for name in (a, b) if "{" + ("a" if name == a else "b") + "}" in text}
        if (EXACT in needs and used & rounded) or (ORDER in needs and any(_kind(values[v]) == "c" for v in used)):
            continue
        target = choose(("a", "b", "c", *live[:1])) if not writes else a
        line = line if writes else f"{target} = {line}"
        found = _after(line, values)
        if found is None or not isinstance(found[target], (np.ndarray, np.generic)):
            continue
        if used & rounded or ROUNDS in needs or not all(map(_is_exact, (found[v] for v in (target, *used) if v in found))):
            shared = [v for v in live if v in found and _share(found[v], found[target])]
            rounded |= {target, *(shared if writes else ())}
        else:
            rounded -= set() if writes else {target}
        values = found
        lines.append(line)
        live += [target] if target not in live else []
    results = tuple(choose(live) for _ in range(choose((1, 2, 3))))
    return Program(arguments, empty.number, tuple(lines), results, empty.sizes, frozenset(rounded))


def _kind(value: Any) -> str:
    return str(np.asarray(value).dtype.kind)


def _share(one: Any, other: Any) -> bool:
    return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.may_share_memory(one, other)


def _is_exact(value: Any) -> bool:
    """Whether sums and products of such values are not rounded."""
    value = np.asarray(value)
    if value.dtype.kind not in "fc":
        return True
    parts = np.concatenate([value.real.ravel(), value.imag.ravel()]).astype(np.float64)
    parts = parts[np.isfinite(parts)]
    fine = 4 if value.dtype.itemsize == 2 else 64
    return bool(np.all(parts * fine == np.floor(parts * fine)) and np.all(abs(parts) < (64 if fine == 4 else 4096)))


def _after(line: str, values: dict[str, Any]) -> dict[str, Any] | None:
    """The values behind a line; None where it raises, or where values become large."""
    scope: dict[str, Any] = {"xp": np, "np": np, **values}
    backup = {k: v.copy() for k, v in values.items() if isinstance(v, np.ndarray)}
    try:
        with np.errstate(all="ignore"):
            exec(line, scope)
    except (ValueError, TypeError, IndexError, AttributeError, OverflowError):
        scope = {}
    found = {k: v for k, v in scope.items() if k not in ("xp", "np", "__builtins__")}
    if found and all(map(_is_small, found.values())):
        return found
    for k, v in backup.items():  # aliases hold the same
        if values[k].flags.writeable:
            values[k][...] = v
    return None


def _is_small(value: Any) -> bool:
    value = np.asarray(value)
    if value.size > MOST_VALUES or value.ndim > 5:
        return False
    if value.dtype.kind not in "fc":
        return True
    finite = abs(value[np.isfinite(value)])
    return bool(finite.max(initial=0) < (200 if value.dtype.itemsize == 2 else LARGEST))


def _parameters(choose: Choose, value: Any) -> dict[str, Any]:
    """Axes, slices and the like for an array."""
    ndim = np.ndim(value)
    axes = list(range(-ndim, ndim)) or [0]
    some = tuple(k for k in range(ndim) if choose((True, False)))
    steps = ("::2", "::-1", "1:", ":-1", "::-2", "-2::-1", ":", "1:-1", "0", "-1", "...", "None", "5:1:-1", "2:1", "3:")
    return {
        "x": choose((None, some, choose(axes))),
        "o": choose((*axes, None)),
        "i": choose(axes),
        "k": choose((False, True)),
        "p": tuple(sorted(range(ndim), key=lambda k: choose(range(4)))),
        "s": ", ".join(choose(steps) for _ in range(choose(range(1, max(ndim, 1) + 1)))),
        "r": choose((1, -2, 5)),
        "t": choose(("float32", "int32", "bool", "float64", "int64", "float16", "uint8")),
    }


def _array(argument: Argument, before: Sequence[Any], sizes: Sizes, rng: np.random.Generator) -> Any:
    if argument.alias is not None:
        return _alias(before[argument.of], argument.alias)
    shape = tuple(sizes.get(letter, -1) if letter.isalpha() else int(letter) for letter in argument.shape)
    dtype = np.dtype(argument.dtype)
    made = rng.integers(-6, 7, shape) * (0.5 if dtype.kind in "fc" else 1)
    made = abs(made) if dtype.kind in "ub" else made
    if dtype.kind == "c":
        made = made + 1j * rng.integers(-3, 4, shape)
    made = np.asarray(made).astype(dtype)
    if argument.special and dtype.kind == "f" and made.size:
        np.put(made, rng.integers(0, made.size, 2), rng.choice(SPECIAL, 2))
    return _laid_out(made, argument.layout)


def _laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """A view of an array that is in C order."""
    if layout == "broadcast" and array.ndim and array.shape[0]:
        return np.broadcast_to(array[0].copy(), array.shape)
    if layout == "C" or layout == "broadcast" or array.ndim == 0:
        return array
    if layout == "Fortran":
        return np.ascontiguousarray(array.T).T
    if layout == "steps":
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if layout == "backwards":
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "part":
        return np.pad(array, [(1, 2)] * array.ndim)[tuple(slice(1, 1 + n) for n in array.shape)]
    return np.concatenate([np.zeros(1, array.dtype), array.ravel()])[1:].reshape(array.shape)


def _alias(array: Any, alias: str) -> Any:
    if alias == "same" or array.ndim == 0:
        return array
    return {"behind": array[1:], "before": array[:-1], "turned": array.T, "backwards": array[::-1]}[alias]


__all__ = ["Argument", "Choose", "Program", "program"]
