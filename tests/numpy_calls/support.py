"""What becomes of each public callable of NumPy's in captured code: ``python -m tests.numpy_calls.support`` writes docs/numpy.md.

- native: the call is part of the graph, by a door or because NumPy's own Python source is followed;
- external call: the program calls NumPy's function;
- drawn: NumPy's generator is called before the program, which takes what it gives;
- constant: known when the function is captured, and no part of the program;
- breaks: the call runs eagerly, and capture goes on after it.
"""

from __future__ import annotations

import inspect
import pathlib
import re
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import dynagraph as dg
from dynagraph.backends.reference import reference
from dynagraph.ir.ops import Creation

from . import calls

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "numpy.md"
ARRAY_METHODS = [name for name in dir(np.ndarray) if not name.startswith("_")]
NAMES = tuple(calls.arguments())


@dataclass(frozen=True)
class Section:
    title: str
    names: list[str]  # of NumPy's public callables
    calls: dict[str, str]
    not_tried: dict[str, str]


@dataclass(frozen=True)
class Row:
    name: str
    call: str
    becomes: str
    reason: str = ""


def public(owner: Any) -> list[str]:
    """The names of what can be called, exceptions and modules apart."""
    found = [name for name in dir(owner) if not name.startswith("_") and callable(getattr(owner, name))]
    return [n for n in found if not (inspect.isclass(getattr(owner, n)) and issubclass(getattr(owner, n), BaseException))]


def sections() -> list[Section]:
    methods = [n for n in ARRAY_METHODS if callable(getattr(np.ndarray, n))]
    generator = [n for n in public(np.random.Generator) if n != "bit_generator"]
    objects = ["c_[...]", "r_[...]", "s_[...]", "mgrid[...]", "ogrid[...]", "index_exp[...]"]
    of_ufuncs = [n for n in calls.NUMPY if n.startswith("add.")]
    return [
        Section("numpy", [*public(np), *objects, *of_ufuncs], calls.NUMPY, calls.NOT_TRIED),
        Section("numpy.linalg", public(np.linalg), calls.LINALG, {"test": calls.EFFECT}),
        Section("numpy.fft", public(np.fft), calls.FFT, {"test": calls.EFFECT}),
        Section("numpy.lib.stride_tricks", public(np.lib.stride_tricks), calls.STRIDES, {}),
        Section("ndarray methods", methods, calls.METHODS, calls.METHODS_NOT_TRIED),
        Section("ndarray attributes", [n for n in ARRAY_METHODS if n not in methods], calls.ATTRIBUTES, {}),
        Section("numpy.random.Generator", generator, calls.GENERATOR, {}),
        Section("numpy.random", public(np.random), calls.LEGACY, calls.LEGACY_NOT_TRIED),
    ]


def rows(section: Section) -> Iterator[Row]:
    """A row for each name; raises KeyError where there is neither a call nor a reason why not."""
    for name in section.names:
        if name in section.not_tried:
            yield Row(name, "", "breaks", section.not_tried[name])
        else:
            yield row(name, section.calls[name])


def row(name: str, expression: str, **options: Any) -> Row:
    """Capture a call, and compare it with the plain one: results, and what it writes to.  `options` are those of dg.compile."""
    function = _function(expression)
    graphs: list[Any] = []

    def backend(graph: Any, example_inputs: Any = None) -> Any:
        graphs.append(graph)
        return reference(graph)

    compiled = dg.compile(function, **{"backend": backend, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in (7, 8):  # the same program for other values
            wanted, given = _run(function, seed), _run(compiled, seed)
            assert_same(given, wanted)
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
    becomes, reason = _class_of(compiled, graphs)
    return Row(name, expression, becomes, reason)


def _function(expression: str) -> Any:
    """The call, after something that is worth a graph."""
    scope = {"np": np, "__name__": "calls"}
    names = [n for n in NAMES if re.search(rf"\b{n}\b", expression)]
    exec(f"def call({', '.join([*names, 'one'])}):\n    two = one + 1\n    return two, {expression}\n", scope)
    return scope["call"]


def _run(function: Any, seed: int) -> tuple[Any, Any]:
    plain = function if isinstance(function, types.FunctionType) else function.__wrapped__
    names = plain.__code__.co_varnames[: plain.__code__.co_argcount]
    given = {**calls.arguments(seed), "one": np.ones(2)}
    np.random.seed(seed)
    with np.errstate(all="ignore"):
        result = function(*[given[n] for n in names])
    return result, [given[n] for n in names if n != "g"]


def _class_of(compiled: Any, graphs: list[Any]) -> tuple[str, str]:
    breaks = list(compiled.stats.breaks)
    if breaks:
        return "breaks", _reason(str(breaks[0]))
    nodes = [n for g in graphs for n in g.nodes if n.kind == "call_function"]
    if any(is_called_out(n) for n in nodes):
        return "external call", ""
    if any(program.captured.prologue for program in compiled.programs):
        return "drawn", ""
    return ("native" if len(nodes) > 2 or any(_computes(n) for n in nodes) else "constant"), ""


def _computes(node: Any) -> bool:
    """Whether a node is part of the call: neither a copy of a constant, nor what was put before the call."""
    before = node.is_op("add") and any(a.kind == "placeholder" and a.name == "one" for a in node.args)
    return not (before or isinstance(node.op.lowering, Creation) or node.is_op("copy"))


def is_called_out(node: Any) -> bool:
    """Whether the program calls NumPy's own function for a node."""
    return node.is_op("external_call")


def _reason(text: str) -> str:
    first = re.sub(r"^[^ ]*:\d+: ", "", text.split("; fix: ")[0])
    return re.sub(r" at 0x[0-9a-f]+", "", first).replace("|", "\\|")


def assert_same(given: Any, wanted: Any) -> None:
    """Equal in type, dtype, shape and values, within what a last bit may differ by."""
    if isinstance(wanted, (tuple, list)):
        assert type(given) is type(wanted) and len(given) == len(wanted), (given, wanted)
        for g, w in zip(given, wanted):
            assert_same(g, w)
    elif isinstance(wanted, (np.ndarray, np.generic)):
        assert type(given) is type(wanted), (type(given), type(wanted))
        assert given.dtype == wanted.dtype, (given.dtype, wanted.dtype)
        assert given.shape == wanted.shape, (given.shape, wanted.shape)
        if wanted.dtype.kind in "fc":
            np.testing.assert_allclose(given, wanted, rtol=1e-12, atol=1e-12)
        else:
            assert given.tobytes() == wanted.tobytes() or np.array_equal(given, wanted)
    else:
        assert type(given) is type(wanted), (type(given), type(wanted))
        if isinstance(wanted, (bool, int, float, str, bytes, type, np.dtype, dict)):
            assert given == wanted


def lines(section: Section) -> list[str]:
    """The section's rows as the page has them."""
    return [_line(r) for r in rows(section)]


def _line(r: Row) -> str:
    return f"| `{r.name}` | {f'`{r.call}`' if r.call else ''} | {r.becomes} | {r.reason} |"


def table() -> str:
    """The page: counts, and a table for each namespace."""
    parts, counted = [], []
    for section in sections():
        found = list(rows(section))
        counts = {k: sum(r.becomes == k for r in found) for k in ("native", "external call", "drawn", "constant", "breaks")}
        counted.append(f"| {section.title} | " + " | ".join(str(c) for c in counts.values()) + " |")
        shown = "\n".join(map(_line, found))
        parts.append(f"## {section.title}\n\n| name | call | becomes | why |\n|---|---|---|---|\n{shown}")
    version = ".".join(np.__version__.split(".")[:2])
    return HEAD.format(version=version, counts="\n".join(counted)) + "\n\n".join(parts) + "\n"


HEAD = """# NumPy in captured code

After this page you can look up what becomes of a NumPy function in captured code. Each row is one representative call of a public
callable of NumPy {version}; other arguments may fare otherwise.

- **native**: part of the graph. The function has a meaning of its own, or NumPy's Python source is followed;
- **external call**: the program calls NumPy's function;
- **drawn**: NumPy's generator is called before the program, in order, and its result is an input;
- **constant**: known at capture;
- **breaks**: runs eagerly, and capture goes on after it.

NumPy's own code is taken as unchanging: what its functions read from NumPy's modules is not guarded. If NumPy rejects the
arguments or warns, the call runs eagerly.

`python -m tests.numpy_calls.support` writes this page: it makes each call captured and plainly, and compares the results. A test
keeps the page up to date.

| | native | external call | drawn | constant | breaks |
|---|---|---|---|---|---|
{counts}

"""

if __name__ == "__main__":
    with dg.config.override(compile_budget=None, stay_eager=False):  # as in the suite: what is put off would count as constant
        PAGE.write_text(table())
