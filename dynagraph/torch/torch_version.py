"""``torch.__version__``: a string that compares as versions do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


class TorchVersion(str):
    """A version: compares with strings and tuples by its numbers, not by its letters.

    >>> TorchVersion("2.13.0") > "2.9", TorchVersion("2.13.0") >= (2, 13)
    (True, True)
    """

    def _compared(self, other: Any, by_version: Callable[[Any, Any], bool], by_text: Callable[[Any, Any], bool]) -> bool:
        first, second = release_of(self), release_of(other)
        return by_text(str(self), str(other)) if first is None or second is None else by_version(first, second)

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, tuple.__lt__, str.__lt__)

    def __le__(self, other: Any) -> bool:
        return self._compared(other, tuple.__le__, str.__le__)

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, tuple.__gt__, str.__gt__)

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, tuple.__ge__, str.__ge__)

    def __eq__(self, other: object) -> bool:
        return self._compared(other, tuple.__eq__, str.__eq__)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)


_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)(?:(a|b|rc|\.dev)(\d*))?(?:\+(.*))?$")


def release_of(given: Any) -> tuple[Any, ...] | None:
    """What versions are compared by: numbers without zeros at the end, then the kind of pre-release, then the local part."""
    if isinstance(given, tuple):
        given = ".".join(map(str, given))
    found = _VERSION.match(given) if isinstance(given, str) else None
    if found is None:
        return None
    numbers = [int(n) for n in found[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    stage = {".dev": 0, "a": 1, "b": 2, "rc": 3, None: 4}[found[2]]
    return (*numbers, -1), stage, int(found[3] or 0), found[4] or ""


__all__ = ["TorchVersion"]
