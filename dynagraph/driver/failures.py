"""Failed compilations: for which kinds of arguments, and when to try again.

Small values (flags, modes, counts) may decide how code runs, so the first few that fail are remembered one by one; after these
the failure is that of the types, whatever the values are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.array_libraries import is_array

MAX_KINDS = 256  # remembered for one function
MAX_VALUES = 4  # values that fail one by one, before the types do
FIRST_WAIT = 8  # calls; the waits double

Kind = tuple[Any, ...]


@dataclass
class _Wait:
    calls: int = 0  # since the last try
    length: int = FIRST_WAIT


class Failures:
    """The memory of one compiled function."""

    def __init__(self) -> None:
        self._waits: dict[Kind, _Wait] = {}
        self._values: Counter[Kind] = Counter()  # by types: different values that failed

    def __len__(self) -> int:
        return len(self._waits)

    def _key(self, values: tuple) -> Kind:
        types = types_of(values)
        return types if self._values[types] >= MAX_VALUES else (types, _small(values))

    def shall_wait(self, values: tuple) -> bool:
        """Whether the last failure of this kind is too recent to try again; counts the call."""
        wait = self._waits.get(self._key(values))
        if wait is None:
            return False
        wait.calls += 1
        if wait.calls < wait.length:
            return True
        wait.calls, wait.length = 0, 2 * wait.length
        return False

    def remember(self, values: tuple) -> None:
        """A capture with these arguments failed."""
        key = self._key(values)
        if key in self._waits:
            return
        if len(self._waits) >= MAX_KINDS:
            self.clear()
        self._waits[key] = _Wait()
        types = types_of(values)
        if key != types:
            self._values[types] += 1
            if self._values[types] == MAX_VALUES:
                self._forget_values(types)

    def _forget_values(self, types: Kind) -> None:
        """From here on the types wait, as long as the value that was tried most."""
        of_values = [key for key in self._waits if key[0] == types]
        longest = max((self._waits.pop(key) for key in of_values), key=lambda wait: wait.length)
        self._waits[types] = _Wait(length=longest.length)

    def clear(self) -> None:
        self._waits.clear()
        self._values.clear()


class Unremembered(Failures):
    """Of functions whose callers remember them."""

    def shall_wait(self, values: tuple) -> bool:
        return False

    def remember(self, values: tuple) -> None:
        pass


def types_of(values: tuple) -> Kind:
    """Layouts of arrays, types of the rest."""
    parts: list[Any] = []
    for value in values:
        kind = type(value)  # isinstance would ask the object
        if issubclass(kind, np.ndarray):
            parts.append((kind, value.dtype, value.ndim, value.flags.num))
        elif is_array(value):
            parts.append((kind, value.dtype, value.ndim, value.flags.c_contiguous))
        else:
            parts.append(kind)
    return tuple(parts)


def _small(values: tuple) -> Kind:
    return tuple((k, value) for k, value in enumerate(values) if type(value) in (bool, int, str))


__all__ = ["Failures", "Kind", "Unremembered", "types_of"]
