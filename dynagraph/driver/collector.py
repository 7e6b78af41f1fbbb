"""Pauses the cyclic garbage collector while the compiler makes many objects that stay.

It looks through the whole heap each time that this has grown by a quarter, which took a third of the time in which a program of
another process is read.  Only thresholds are changed: a program that switches the collector off or on meanwhile is left its way.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No collection begins by itself in the extent of a ``with`` block, in any thread: nothing long may be waited for there."""
    thresholds = gc.get_threshold()
    if not thresholds[0]:  # it is off, or paused by another thread
        yield
        return
    gc.set_threshold(0, *thresholds[1:])
    try:
        yield
    finally:
        if not gc.get_threshold()[0]:
            gc.set_threshold(*thresholds)


__all__ = ["paused"]
