"""Functions of this package that nobody asked to have compiled, such as operations on large tensors.  They cost nobody's budget.

- An *exact* function gives the same bits of real numbers compiled and plainly.  A thread compiles it (background.py), and its
  calls run plainly until that is done; from then on they go the faster way.  With complex numbers it runs plainly.
- Others differ in last places, which must not depend on when a compiler has ended.  The first call of each kind of arguments
  waits until it is compiled, and all later ones run compiled; where it cannot be compiled, all of them run plainly.

No warning is given, and no stance but "force_eager" is heeded.  Without a C compiler calls run plainly.
"""

from __future__ import annotations

import sys
import types
from collections import Counter
from functools import partial
from typing import Any

import numpy as np

from dynagraph import config
from dynagraph._core import _dispatch
from dynagraph.driver import control, loading
from dynagraph.driver.background import WORK
from dynagraph.driver.decorated import Decorated, Options
from dynagraph.errors import CompilerError
from dynagraph.markers import is_compiling
from dynagraph.originals import replaced

MOST_TRIED = 4  # times, for arguments of a kind: what else guards depend on may differ
_COMPLEX = (np.complex64, np.complex128)
NO_COMPILER = "there is no C compiler"


class Unasked(Decorated):
    """Such a function.  `stats.breaks` says why it runs plainly."""

    def __init__(self, function: types.FunctionType, exact: bool):
        super().__init__(function, Options(dynamic=True, limited=False, measured=exact, unasked=True))
        self.exact = exact
        self.tried: Counter[Any] = Counter()  # by kind of arguments
        self.plain: set[Any] = set()  # kinds that run plainly
        self.error: Exception | None = None  # of the thread, under config.strict

    def on_miss(self, compiled: Any, args: tuple, kwargs: dict | None) -> Any:
        """As Decorated's."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if control.is_disabled() or control.current_stance() == "force_eager" or is_compiling() or replaced() is not None:
            return _dispatch.PLAINLY
        if sys.is_finalizing():
            return _dispatch.PLAINLY
        kind = kind_of(args, kwargs or {})
        if kind is None or kind in self.plain:
            return _dispatch.PLAINLY
        function = compiled.__wrapped__
        if self.exact:
            if any(getattr(value, "dtype", None) in _COMPLEX for value in args):
                self.plain.add(kind)  # NumPy's products of complex numbers depend on its SIMD
            elif not WORK.is_busy_with((id(self), kind)):
                self._begin_aside(function, args, kwargs, kind)
            return _dispatch.PLAINLY
        values = _dispatch.bind(function, args, kwargs)
        entry = self._entry(function, values, kind)
        if entry is None:
            return _dispatch.PLAINLY
        plainly = _dispatch.Tail(partial(function, **kwargs) if kwargs else function, *args)
        return _dispatch.Tail(entry.run_or, values, plainly)

    def _begin_aside(self, function: types.FunctionType, args: tuple, kwargs: dict | None, kind: Any) -> None:
        self.tried[kind] += 1
        if self.tried[kind] > MOST_TRIED:
            self.plain.add(kind)
            return
        values = _dispatch.bind(function, tuple(map(stand_in, args)), kwargs)

        def job() -> None:
            try:
                self._entry(function, values, kind)
            except Exception as error:  # the compiler's own, under config.strict alone
                self.error = error

        WORK.submit((id(self), kind), job)

    def _entry(self, function: types.FunctionType, values: tuple, kind: Any) -> Any | None:
        """An entry that serves these arguments, made now; None, for good, where there can be none."""
        try:
            compiler = loading.compiler()
            entry = None if self._lacks(compiler) else self._compilation(compiler).entry_if_there_is_room(function, values)
        except CompilerError as error:  # it cannot be loaded
            if config.strict:
                raise
            self.stats.last_error = error
            entry = None
        if entry is None and not WORK.ended:
            self.plain.add(kind)
        return entry

    def _compilation(self, compiler: Any) -> Any:
        if self.compilation is None:
            made = compiler.Compilation(self.compiled.__wrapped__, self)
            vars(self).setdefault("compilation", made)  # another thread may have made one meanwhile
        return self.compilation

    def _lacks(self, compiler: Any) -> bool:
        lacks: bool = not compiler.has_c_compiler()
        if lacks:
            self.stats.breaks[NO_COMPILER] += 1
        return lacks

    def reset(self) -> None:
        self.tried.clear()
        self.plain.clear()
        super().reset()


def compile_unasked(function: types.FunctionType, exact: bool) -> Any:
    """What `dg.compile` gives, for a function of this package's own; `exact`: compiled code gives NumPy's bits."""
    return Unasked(function, exact).presented()


def kind_of(args: tuple, kwargs: dict[str, Any]) -> Any:
    """What guards may ask of arguments, but for sizes and values of numbers; None: these are not for compiled code."""
    parts: list[Any] = []
    for value in args:
        if type(value) is np.ndarray:
            flags = value.flags
            layout = None if flags.c_contiguous else value.strides
            sizes = tuple(min(size, 2) for size in value.shape)
            parts.append((value.dtype, sizes, layout, flags.aligned, flags.writeable))
        elif type(value) in (bool, int, float, complex) or isinstance(value, np.generic):
            parts.append(type(value))
        else:
            return None
    parts.append(tuple((name, type(value) if type(value) in (int, float) else value) for name, value in kwargs.items()))
    kind = tuple(parts)
    try:
        hash(kind)
    except TypeError:
        return None
    return kind


def stand_in(value: Any) -> Any:
    """An array of the same layout, in memory that nobody touches: the capture may come when the array itself is gone."""
    if type(value) is not np.ndarray:
        return value
    steps = [(size - 1) * stride for size, stride in zip(value.shape, value.strides) if size]
    before, after = -sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    memory = np.empty(before + after + value.itemsize, np.uint8)
    made = np.ndarray(value.shape, value.dtype, memory, before, value.strides)
    made.flags.writeable = value.flags.writeable
    return made


__all__ = ["NO_COMPILER", "compile_unasked"]
