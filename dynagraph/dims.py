"""Which sizes of an export are symbolic: `Dim`, and what `dynamic_shapes` says of each argument."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynagraph.errors import ExportError
from dynagraph.pytree import named_leaves, parts_of

MOST = (1 << 31) - 1  # of a size whose bound is not given: products of two are 64-bit numbers


class DimHint(enum.Enum):
    """Sizes without a name: what the capture decides about them is up to it (AUTO), or an error (DYNAMIC); STATIC is as given."""

    AUTO = "AUTO"
    DYNAMIC = "DYNAMIC"
    STATIC = "STATIC"


class _DimType(type):
    AUTO, DYNAMIC, STATIC = DimHint.AUTO, DimHint.DYNAMIC, DimHint.STATIC


@dataclass(frozen=True)
class Dim(metaclass=_DimType):
    """A size with a name, within bounds: ``Dim("batch", min=1, max=64)``.  Axes with the same Dim have the same size.

    ``2 * Dim("half")`` and ``Dim("n") + 1`` are sizes derived from another.  ``Dim.AUTO``, ``Dim.DYNAMIC`` and ``Dim.STATIC`` have
    no name.
    """

    name: str
    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.isidentifier()):
            raise ExportError(f"Dim: a name must be an identifier, got {self.name!r}")
        if not 0 <= (self.min or 0) <= self.highest:
            raise ExportError(f"Dim({self.name!r}): min={self.min} and max={self.max} leave no size")

    @property
    def lowest(self) -> int:
        """No program is made for empty arrays."""
        return max(self.min or 0, 1)

    @property
    def highest(self) -> int:
        return MOST if self.max is None else self.max

    def __mul__(self, factor: int) -> "Derived":
        return Derived(self, factor, 0)

    def __add__(self, shift: int) -> "Derived":
        return Derived(self, 1, shift)

    def __sub__(self, shift: int) -> "Derived":
        return Derived(self, 1, -shift)

    __rmul__, __radd__ = __mul__, __add__

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Derived:
    """``factor * root + shift``."""

    root: Dim
    factor: int
    shift: int

    def __mul__(self, factor: int) -> "Derived":
        return Derived(self.root, self.factor * factor, self.shift * factor)

    def __add__(self, shift: int) -> "Derived":
        return Derived(self.root, self.factor, self.shift + shift)

    def __sub__(self, shift: int) -> "Derived":
        return self + -shift

    __rmul__, __radd__ = __mul__, __add__


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several at once: ``height, width = dims("height", "width")``."""
    return tuple(Dim(name, min, max) for name in names)


Size = Dim | Derived | DimHint


def sizes_of(shapes: Any, tree: Any, names: Mapping[str, Any]) -> list[dict[int, Size]]:
    """For each leaf of `tree`, the arguments, what is said of its axes.

    `shapes`: None, a dict by parameter, or a sequence in their order; `names`: the arguments by parameter.  Below, it is a tree
    like the argument's, with a dict by axis or a sequence with an entry an axis in place of each array; None: sizes are as given.
    """
    if shapes is None:
        return [{} for _ in named_leaves(tree, "")]
    if isinstance(shapes, Sequence) and not isinstance(shapes, str):
        if len(shapes) != len(names):
            raise ExportError(f"export: dynamic_shapes has {len(shapes)} entries for {len(names)} arguments ({', '.join(names)})")
        shapes = dict(zip(names, shapes))
    if not isinstance(shapes, Mapping):
        raise ExportError(f"export: dynamic_shapes must be a dict by parameter, or a sequence, got {type(shapes).__name__}")
    unknown = [name for name in shapes if name not in names]
    if unknown:
        raise ExportError(f"export: dynamic_shapes names {', '.join(map(str, unknown))}; the arguments are {', '.join(names)}")
    found: list[dict[int, Size]] = []
    for name, value in names.items():
        found += _of_tree(shapes.get(name), value, name)
    return found


def _of_tree(said: Any, tree: Any, name: str) -> list[dict[int, Size]]:
    parts = parts_of(tree)
    if parts is None:
        return [_of_leaf(said, tree, name)]
    if said is None:
        return [{} for _ in named_leaves(tree, name)]
    below = parts_of(said)
    if below is None or [way for way, _ in below] != [way for way, _ in parts]:
        raise ExportError(f"export: dynamic_shapes of {name} must be None or a tree like the argument's, got {said!r}")
    return [size for (way, part), (_, inner) in zip(parts, below) for size in _of_tree(inner, part, name + way)]


def _of_leaf(said: Any, leaf: Any, name: str) -> dict[int, Size]:
    if said is None:
        return {}
    shape = getattr(leaf, "shape", None)
    if shape is None:
        raise ExportError(f"export: dynamic_shapes of {name}: {type(leaf).__name__} has no sizes; leave it out, or give None")
    rank = len(shape)
    if not isinstance(said, Mapping):
        if not isinstance(said, Sequence) or isinstance(said, str) or len(said) != rank:
            raise ExportError(f"export: dynamic_shapes of {name} must be a dict by axis, or have {rank} entries, got {said!r}")
        said = dict(enumerate(said))
    found: dict[int, Size] = {}
    for axis, size in said.items():
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise ExportError(f"export: dynamic_shapes of {name}: no axis {axis!r}, the argument has {rank}")
        if isinstance(size, str):
            size = Dim(size)
        if size is None or size is DimHint.STATIC or type(size) is int:
            if type(size) is int and size != shape[axis]:
                raise ExportError(f"export: dynamic_shapes of {name}: axis {axis} is {shape[axis]}, not {size}")
            continue
        if not isinstance(size, (Dim, Derived, DimHint)):
            raise ExportError(f"export: dynamic_shapes of {name}: axis {axis} must be a Dim, Dim.AUTO or None, got {size!r}")
        found[axis % rank] = size
    return found


__all__ = ["MOST", "Derived", "Dim", "DimHint", "Size", "dims", "sizes_of"]
