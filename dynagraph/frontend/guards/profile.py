"""Profile of earlier calls: which sizes and numbers change, and become symbolic.

The first program takes them as they are; a size or number that is another one at the next capture becomes a symbol.  0, 1 and
negative numbers stay what they are: programs treat them in their own way.
"""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.guards.sources import Source
from dynagraph.markers import marked_axes

SMALLEST = 2  # of symbolic sizes and integers
MOST_CONSTANTS = 8  # programs for values of one number
LARGEST = 1 << 31  # the product of two still is a 64-bit number, as sizes are in generated code


class Profile:
    """`dynamic`: True makes all sizes symbolic at once, False none ever, None those that change.

    `floats_of_sizes`: whether floats that are made of symbolic sizes change with them, and integers that are may be large.
    """

    floats_of_sizes = False

    def __init__(self, dynamic: bool | None = None):
        self.dynamic = dynamic
        self.shapes: dict[Source, list[int | None]] = {}  # None: this axis changes
        self.numbers: dict[Source, Any] = {}
        self.changing: set[Source] = set()
        self.specialised: set[Source] = set()  # numbers that turned out to be needed as they are
        self.constants: dict[Source, int] = {}  # how many values of these came
        self.texts: dict[Any, set[int]] = {}  # by a place of the code: the numbers that were made text there

    def symbolic_axes(self, source: Source, array: Any) -> list[bool]:
        """Which axes of an array get a symbol."""
        if self.dynamic is False:
            return [False] * array.ndim
        seen = self.shapes.get(source)
        if seen is None or len(seen) != array.ndim:
            seen = self.shapes[source] = list(array.shape)
        for axis, size in enumerate(array.shape):
            before = seen[axis]
            if before is not None and before != size and size >= SMALLEST:
                seen[axis] = size if before < SMALLEST else None
        wanted = marked_axes(array)
        return [
            size >= SMALLEST and (self.dynamic is True or seen[axis] is None or axis in wanted)
            for axis, size in enumerate(array.shape)
        ]

    def symbolic_number(self, source: Source, value: Any) -> bool:
        """Whether a number is an input of the program rather than a constant."""
        if self.dynamic is False:
            return False
        if source in self.specialised:
            if self.numbers.get(source) != value:
                self.numbers[source] = value
                self.constants[source] = self.constants.get(source, 0) + 1
            return False
        seen = self.numbers.setdefault(source, value)
        if type(seen) is not type(value):
            self.numbers[source] = value
        elif seen != value and value == value:
            self.changing.add(source)
        return source in self.changing and (type(value) in (float, complex) or SMALLEST <= value < LARGEST)

    def is_restless_text(self, place: Any, number: int) -> bool:
        """Whether ever other numbers are made text at a place of the code."""
        seen = self.texts.setdefault(place, set())
        seen.add(number)
        return len(seen) > MOST_CONSTANTS

    def restless(self) -> set[Source]:
        """Numbers that take ever other values: where they are needed as they are, Python had better do that."""
        return {source for source, n in self.constants.items() if n > MOST_CONSTANTS}
