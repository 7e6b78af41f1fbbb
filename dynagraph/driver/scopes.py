"""Settings that ``with`` blocks replace; blocks of several threads may end in any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Scope:
    """What one block says, by names; equal to itself alone."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[str, Any]):
        self.values = dict(values)


class Scopes:
    """The blocks that have been entered and not left, after what holds without any.

    A name has the value that the block entered last gives it.  No lock, which a forked child might find held: each step is one of a
    list's, which the GIL keeps whole.
    """

    def __init__(self, base: Mapping[str, Any]):
        self._scopes = [Scope(base)]

    def _innermost(self, name: str) -> dict[str, Any]:
        for scope in self._scopes[::-1]:
            if name in scope.values:
                return scope.values
        raise KeyError(name)

    def __getitem__(self, name: str) -> Any:
        return self._innermost(name)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """In the innermost block that says something of the name: it holds until that one ends."""
        self._innermost(name)[name] = value

    def enter(self, values: Mapping[str, Any]) -> Scope:
        """Begin a block: gives what `leave` ends it by."""
        scope = Scope(values)
        self._scopes.append(scope)
        return scope

    def leave(self, scope: Scope) -> None:
        self._scopes.remove(scope)


__all__ = ["Scope", "Scopes"]
