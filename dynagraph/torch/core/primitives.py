"""Primitives: what autograd records.  Each is a function of arrays with a gradient by each operand.

Most are rows of the op table under PyTorch's name for their node.  Where PyTorch's convention is another than NumPy's (gradients at
kinks and bounds, accumulation of halves), or no row exists, the primitive's own forward function or gradient stands in its family's
module under `dynagraph/torch/functions/`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dynagraph.ir.ops import OPS
from dynagraph.markers import at_capture
from dynagraph.torch.core.terms import FORWARD, defaults_of, in_one_pass

PRIMITIVES: dict[str, Primitive] = {}


class Primitive:
    """What applying it to tensors does.

    `forward(*arrays, **attrs)` gives an array, or a tuple of `outputs` arrays.
    `vjps`: the gradient by each operand, ``(d, g) -> term or None``; a single function gives those of any number of operands
    as a sequence.  `d` has the operands (`x`, `y`, `operands`), results (`out`, `outs`) and `attrs`; with several outputs `g` is a
    tuple with None for those that have no gradient.
    `saves`: for each operand what its gradient reads: letters of "xyzuvw" for the operands, "o", "p" and "q" for the first three
    results.  With a single function for all, one string, in which "*" is every operand, "1" and "2" are those from that number on.
    `differentiable`: the outputs that gradients come from.
    """

    __dynagraph_constant__ = True  # to captured code
    __slots__ = (
        "backward", "defaults", "differentiable", "forward", "is_view", "large", "name", "node_class", "outputs", "saves", "vjp",
        "vjps",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        vjps: tuple[Callable[[Any, Any], Any], ...] | Callable[[Any, Any], Any] | None = None,
        saves: tuple[str, ...] | str = (),
        backward: str = "",
        is_view: bool = False,
        outputs: int = 1,
        differentiable: tuple[int, ...] | None = None,
    ):
        self.name, self.forward, self.saves, self.is_view, self.outputs = name, forward, saves, is_view, outputs
        self.vjps = vjps if isinstance(vjps, tuple) else None
        self.vjp = vjps if callable(vjps) else None
        self.backward = backward or f"{name.title().replace('_', '')}Backward0"
        self.differentiable = tuple(range(outputs)) if differentiable is None else differentiable
        self.defaults: dict[str, Any] = {}  # attributes of the row of this name that gradients may leave out
        self.node_class: Any = None  # made with the first node
        self.large: Any = None  # what computes large arrays, once there were some

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"

    def __dynagraph_made_by__(self) -> tuple[str, ...]:
        """The function that gives it in another process, and its arguments."""
        return __name__, "primitive", self.name


def define(
    name: str, forward: Callable[..., Any], vjps: Any = None, saves: Any = (), *, in_one: bool = False, **about: Any
) -> Primitive:  # fmt: skip
    """Add a primitive; `about` as `Primitive` takes it.  A name is defined once.

    `in_one`: it has one operand, and a gradient element by element that takes several operations (`terms.in_one_pass`).
    """
    if name in PRIMITIVES:
        raise ValueError(f"primitive {name!r} is defined twice")
    if in_one:
        ((vjp,), (reads,)) = vjps, saves
        vjps = (in_one_pass(name, vjp, reads),)
    made = PRIMITIVES[name] = Primitive(name, forward, vjps, saves, **about)
    made.defaults = defaults_of(name, None if forward is FORWARD.get(name) else forward)
    FORWARD[name] = functools.partial(forward, **made.defaults) if made.defaults else forward
    return made


def from_row(row: str, saves: Any, backward: str = "", *, name: str = "", vjps: Any = None, **about: Any) -> Primitive:
    """A primitive that is a row of the op table."""
    op = OPS[row]
    return define(name or row, FORWARD[row], vjps or op.vjps or op.vjp, saves, backward=backward, **about)


@at_capture
def primitive(name: str) -> Primitive:
    """By name; a row that no family has defined keeps all that it might read."""
    found = PRIMITIVES.get(name)
    if found is None:
        op = OPS[name]
        arity = op.arity or 0  # None: any number
        everything = "xyzuvw"[:arity] + "o" if arity else "*o"
        found = from_row(name, (everything,) * arity if op.vjps else everything)
    return found


__all__ = ["PRIMITIVES", "Primitive", "define", "from_row", "primitive"]
