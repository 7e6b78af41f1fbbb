"""The C prelude: pick the scalar functions that one generated file uses out of prelude.h.

A file gets only what it calls, and what that calls: the compiler's time goes with the amount of text.  CUDA C gets the same text,
translated (`backends/cuda/prelude.py`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Set
from importlib import resources
from types import MappingProxyType

_FUNCTION = re.compile(
    r"^(?:/\*(?:(?!\*/).)*\*/\n)?DG_INL [^\n(]*?\b(dg_\w+)\(.*?^\}\n|^DG_RARE_\w+\((dg_\w+),.*?\)\n",
    re.MULTILINE | re.DOTALL,
)
_CALL = re.compile(r"\b(dg_\w+)\(")


def prelude_for(functions: Set[str]) -> str:
    """C text that defines functions of the prelude, given as dg_<function>_<suffix>, and all that they call."""
    return "\n".join([_chunks()[0], *definitions(functions).values()])


def definitions(functions: Set[str], replaced: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The text of functions and of all that they call, by name and in an order in which they can stand.

    What is `replaced` has another text.  Raises KeyError for what is not there.
    """
    chunks = _chunks()[1]
    needed: set[str] = set()
    pending = list(functions)
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        if name not in chunks and name not in replaced:
            raise KeyError(f"{name}: the prelude has no such function")
        needed.add(name)
        pending += [n for n in _CALL.findall(replaced[name]) if n != name] if name in replaced else _calls(name)
    return {name: replaced.get(name, chunks[name]) for name in sorted(needed & chunks.keys(), key=_places().__getitem__)}


@functools.cache
def _chunks() -> tuple[str, dict[str, str]]:
    """What stands before the first function, and the functions by name, in the order of the file."""
    text = resources.files("dynagraph.backends").joinpath("prelude.h").read_text()
    matches = list(_FUNCTION.finditer(text))
    return text[: matches[0].start()].rstrip() + "\n", {m[1] or m[2]: m[0] for m in matches}


@functools.cache
def _places() -> dict[str, int]:
    """Where the functions stand in the file."""
    return {name: place for place, name in enumerate(_chunks()[1])}


@functools.cache
def _calls(name: str) -> tuple[str, ...]:
    chunks = _chunks()[1]
    return tuple({n for n in _CALL.findall(chunks[name]) if n != name and n in chunks})
