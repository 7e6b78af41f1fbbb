"""Examples of an export: what sizes the capture takes symbolic ones for, and the arrays that it is given."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph.dims import Derived, Dim, Size
from dynagraph.errors import ExportError
from dynagraph.exporting.trees import TENSOR, array_of, kind_of
from dynagraph.frontend.guards.profile import SMALLEST


@dataclass
class Leaf:
    """An array of the call: `value` is what the capture is given in its place; `sizes`: what is said of its axes."""

    role: str  # as InputSpec has it
    target: str
    value: Any
    sizes: Mapping[int, Size] = field(default_factory=dict)
    persistent: bool = True

    @property
    def array(self) -> Any:
        return array_of(self.value)


def root_of(size: Size) -> Dim | None:
    """The size with a name that a size is, or is derived from."""
    return size if isinstance(size, Dim) else size.root if isinstance(size, Derived) else None


def size_at(size: Size, root: int) -> int:
    """The size where the one that it is derived from is `root`."""
    return size.factor * root + size.shift if isinstance(size, Derived) else root


def hints_of(leaves: list[tuple[Any, Mapping[int, Size]]]) -> dict[str, int]:
    """For each named size what the capture takes it to be: what it is in the example, unless that is 0 or 1."""
    taken = {size for leaf, _ in leaves for size in array_of(leaf).shape}
    hints: dict[str, int] = {}
    bounds: dict[str, Dim] = {}
    for leaf, said_of in leaves:
        for axis, size in said_of.items():
            root, given = root_of(size), array_of(leaf).shape[axis]
            if root is None:
                continue
            if bounds.setdefault(root.name, root) != root:
                raise ExportError(f"export: Dim {root.name!r} is given with different bounds")
            value = given
            if isinstance(size, Derived):
                value, rest = divmod(given - size.shift, size.factor)
                if rest:
                    raise ExportError(f"export: {size.factor}*{root} + {size.shift} cannot be {given}, as it is in the example")
            if hints.setdefault(root.name, value) != value:
                raise ExportError(f"export: {root.name} is {hints[root.name]} and {value} in the example; it must be one size")
            if not root.lowest <= value <= root.highest:
                raise ExportError(f"export: {root} is {value} in the example, and is to be from {root.lowest} to {root.highest}")
    for name, value in hints.items():
        if value < SMALLEST:
            hints[name] = next((k for k in range(SMALLEST, bounds[name].highest + 1) if k not in taken), SMALLEST)
            taken.add(hints[name])
            if bounds[name].highest < SMALLEST:
                raise ExportError(f"export: {name} may be {bounds[name].highest} at most: leave it out of dynamic_shapes")
    return hints


def example_of(leaf: Any, sizes: Mapping[int, Size], hints: Mapping[str, int], seen: set[int]) -> Any:
    """What the capture is given in place of an argument: in C order, no array twice, sizes that are symbolic at least 2."""
    array = array_of(leaf)
    shape = list(array.shape)
    for axis, size in sizes.items():
        root = root_of(size)
        shape[axis] = max(shape[axis], SMALLEST) if root is None else size_at(size, hints[root.name])
        if shape[axis] < SMALLEST:
            raise ExportError(f"export: axis {axis}, which is symbolic, must be at least {SMALLEST} in the example")
    if tuple(shape) != array.shape:
        array = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
    elif id(array) in seen or (kind_of(leaf) != "scalar" and not array.flags.c_contiguous):
        array = np.array(array, order="C")
    if array is array_of(leaf):
        return leaf
    return like(leaf, array)


def like(leaf: Any, array: Any) -> Any:
    """The array as what the leaf is."""
    if kind_of(leaf) != "tensor":
        return array if kind_of(leaf) == "array" else array[()]
    made = sys.modules[TENSOR].wrap(array)
    return made.requires_grad_() if leaf.requires_grad else made


__all__ = ["Leaf", "example_of", "hints_of", "like", "root_of", "size_at"]
