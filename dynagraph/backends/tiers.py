"""What the C compiler takes long for is compiled twice: quickly, to begin with, and with all optimisations beside the calls.

Both have the same floating-point flags, and give the same bits, but for the sign of a NaN that the compiler works out.  The cache
keeps both: a later process begins with the better one.
"""

from __future__ import annotations

import logging
import operator

from dynagraph import config
from dynagraph.backends import kernel_cache
from dynagraph.backends.kernel_cache import Kernels, kernels_of
from dynagraph.driver.forks import Locked
from dynagraph.errors import CompilerError
from dynagraph.markers import is_compiling, thread

try:
    from dynagraph._core._frame_hook import call_unwatched
except ImportError:  # a CPython version that the hook does not know
    call_unwatched = operator.call  # type: ignore[assignment]

Code = tuple[int, object]  # the address of a function, and what keeps it loaded
_log = logging.getLogger("dynagraph.kernels")


class Better(Locked):
    """What a NativeLoop or NativePlan asks now and then for the code that all optimisations make of its source; each takes it on.

    `found`: whether it gave it.  `failure`: why there is none; the loop or plan keeps the code that it has.  `seconds`: that the C
    compiler has worked for it.
    """

    def __init__(self, source: str, function: str):
        super().__init__()
        self.source, self.function = source, function
        self.found = False
        self.failure: CompilerError | None = None
        self._kernels: Kernels | None = None
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        kernels = self._kernels
        return self._seconds if kernels is None else kernels.seconds

    def __call__(self) -> Code | bool | None:
        """None: not yet.  False: never."""
        if is_compiling():  # in what interrupts the compiler, which may hold locks
            return None
        return call_unwatched(self._look)  # type: ignore[no-any-return]

    def _look(self) -> Code | bool | None:
        lock = self.lock
        if not lock.acquire(blocking=False):  # another thread looks
            return None
        thread.compiling = True
        try:
            return self._step()
        except CompilerError as error:
            self.failure = error
            if config.strict:
                raise
            _log.warning("machine code stays as it was compiled first: %s", error)
            return False
        finally:
            thread.compiling = False
            lock.release()

    def _step(self) -> Code | None:
        if self._kernels is None:
            if not kernel_cache.may_begin_unasked():
                return None
            self._kernels = kernels_of(self.source, beside=True)
        if not self._kernels.is_ready():
            return None
        kernels, self._kernels = self._kernels, None  # whoever asked holds the code
        self._seconds = kernels.seconds
        code = kernels.address(self.function), kernels.library
        self.found = True
        return code


def in_tiers(source: str, function: str, has_complex: bool, is_slow: bool = True) -> tuple[Kernels, Better | None]:
    """Machine code to begin with, and what will give better code for a function of it; None: it is the best already.

    `has_complex`: whether it computes with complex numbers.  Where gcc 12 vectorises their products it contracts them, whatever its
    flags say: both would not give the same bits.  `is_slow`: whether compiling it takes so long that doing it twice is worth it.
    """
    if has_complex or config.tiers == "best" or (config.tiers == "both" and not is_slow):
        return kernels_of(source), None
    best = kernel_cache.kernels_at_hand(source)
    if best is not None:
        return best, None
    return kernels_of(source, quickly=True), Better(source, function) if config.tiers == "both" else None


__all__ = ["Better", "in_tiers"]
