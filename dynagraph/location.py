"""A place in the user's program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """Where in the user's program a node comes from."""

    filename: str
    line: int

    def __str__(self) -> str:
        return f"{self.filename.rsplit('/', 1)[-1]}:{self.line}"


__all__ = ["Location"]
