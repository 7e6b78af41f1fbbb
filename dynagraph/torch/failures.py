"""Exceptions that are raised again elsewhere."""

from __future__ import annotations

import sys
import traceback


class Failure:
    """An exception of a worker or thread with the text of its traceback, for what waits for it; made where it is caught."""

    def __init__(self, where: str):
        kind, error, trace = sys.exc_info()
        assert kind is not None
        self.kind, self.where = kind, where
        self.text = "".join(traceback.format_exception(kind, error, trace))

    def reraise(self) -> None:
        """Raise an exception of the same type, whose message holds the worker's traceback."""
        message = f"Caught {self.kind.__name__} {self.where}.\nOriginal {self.text}"
        if self.kind is KeyError:
            message = _Text(message)  # KeyError shows the repr of its argument
        try:
            error = self.kind(message)
        except Exception:  # its constructor takes something else
            raise RuntimeError(message) from None
        raise error


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


__all__ = ["Failure"]
