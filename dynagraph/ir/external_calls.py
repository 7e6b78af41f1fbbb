"""External calls as data: LAPACK routines, sorts, FFTs of the array namespace, for ops and loop programs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any


@dataclass(frozen=True)
class Slot:
    """Where an operand stands among the arguments of a call."""

    position: int


@dataclass(frozen=True, repr=False)
class FunctionCall:
    """``xp.function(*args, **kwargs)``: `function` is a dotted name, or a function of our own; the arguments are static, tuples of
    such, or a `Slot`.

    `warns_if`: the operand that is true where the function would give a warning: it is not called then.  `optional`: it is the
    compiler's, and not made where nothing uses the results; calls of the user's are, for they may raise.

    `takes_out`: its result may be written into memory of the caller's, ``out=``; where there are several, a tuple of arrays, and
    None for those that are not wanted.

    `each`: positions of operands that are stacked along a first axis: the function is called for each of their items, and what it
    gives is stacked likewise.  Of several such, the first is the outermost.
    """

    function: str | Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    warns_if: Slot | None = None
    takes_out: bool = False
    optional: bool = field(default=False, compare=False)
    each: tuple[tuple[int, ...], ...] = ()

    def map(self, change: Callable[[Any], Any]) -> "FunctionCall":
        """The call with each argument that is not a tuple changed."""
        kwargs = tuple((k, _mapped(v, change)) for k, v in self.kwargs)
        return replace(self, args=_mapped(self.args, change), kwargs=kwargs)

    def run(self, xp: Any, operands: Sequence[Any], **out: Any) -> Any:
        """What the function gives for the operands; raises what it raises, and ValueError where it would warn, or for no items."""
        if self.each:
            return self._run_each(xp, operands)
        if self.warns_if is not None and operands[self.warns_if.position]:
            raise ValueError(f"{self.function} warns of these values: the user's own line has to")
        args = [_filled(value, operands) for value in self.args]
        for name, value in self.kwargs:
            out[name] = _filled(value, operands)
        return (self.function if callable(self.function) else function_of(xp, self.function))(*args, **out)

    def _run_each(self, xp: Any, operands: Sequence[Any]) -> Any:
        stacked, *within = self.each
        of_one = replace(self, each=tuple(within))
        found = [
            of_one.run(xp, [o[k] if position in stacked else o for position, o in enumerate(operands)])
            for k in range(len(operands[stacked[0]]))
        ]
        if not found:
            raise ValueError(f"{self.name} is called for each of no items: there is nothing to stack")
        return tuple(map(xp.stack, zip(*found))) if isinstance(found[0], tuple) else xp.stack(found)

    @property
    def has_positive_zeros(self) -> bool:
        """Whether no zero of the results is -0.0: the function says so by an attribute of that name."""
        return getattr(self.function, "has_positive_zeros", False)

    @property
    def name(self) -> str:
        return self.function.__name__ if callable(self.function) else f"np.{self.function}"

    def __repr__(self) -> str:
        return self.spelled([f"{{{k}}}" for k in range(100)])

    def spelled(self, operands: Sequence[str]) -> str:
        """The call as text.

        >>> FunctionCall("linalg.solve", (Slot(0), Slot(1))).spelled(["a", "b"])
        'np.linalg.solve(a, b)'
        """

        def spell(value: Any) -> str:
            if isinstance(value, tuple):
                return "(" + ", ".join(map(spell, value)) + ("," if len(value) == 1 else "") + ")"
            return operands[value.position] if isinstance(value, Slot) else repr(value)

        arguments = [*map(spell, self.args), *(f"{k}={spell(v)}" for k, v in self.kwargs)]
        items = "".join(f" for each of {', '.join(operands[k] for k in stacked)}" for stacked in self.each)
        return f"{self.name}({', '.join(arguments)}){items}"


@functools.cache
def function_of(xp: Any, name: str) -> Any:
    """The function of that name in an array namespace, as it was when it was first asked for: a later patch is another function."""
    return attrgetter(name)(xp)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    return tuple(_mapped(v, change) for v in value) if isinstance(value, tuple) else change(value)


def _filled(value: Any, operands: Sequence[Any]) -> Any:
    """An argument with operands in their places."""
    if type(value) is Slot:
        return operands[value.position]
    return tuple(_filled(v, operands) for v in value) if type(value) is tuple else value


def selected(value: Any, result: int | None) -> Any:
    """One of a call's results; None: it has one only."""
    return value if result is None else value[result]


__all__ = ["FunctionCall", "Slot", "function_of", "selected"]
