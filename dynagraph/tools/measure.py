"""Timing of functions side by side.

The contenders run in turn, round after round, so that a busy machine is busy for all of them; figures are medians.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

Call = Callable[[], object]

LEAST_SAMPLE = 2e-3  # seconds: shorter calls are repeated within one sample, for the clock's sake
MOST_CALLS = 10_000  # repetitions within one sample


@dataclass(frozen=True)
class Samples:
    """Seconds of one call, measured several times."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The middle half of the samples over their median: 0.1 means that half of them lie within 10 %."""
        if len(self.seconds) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (third - first) / self.median


def measure(contenders: Mapping[str, Call], rounds: int,
            after_round: Callable[[], None] = lambda: None) -> dict[str, Samples]:
    """Samples of each contender, taken in turn; calls `after_round` once per round. The contenders should be warm."""
    calls = {name: _calls_per_sample(call) for name, call in contenders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        with _no_garbage_collection():
            for name, call in contenders.items():
                seconds[name].append(_sample(call, calls[name]))
        after_round()
    return {name: Samples(tuple(values)) for name, values in seconds.items()}


def seconds_of(call: Call) -> float:
    """One call, once."""
    return _sample(call, 1)


def _sample(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _calls_per_sample(call: Call) -> int:
    once = min(_sample(call, 1) for _ in range(3))
    return max(1, min(MOST_CALLS, round(LEAST_SAMPLE / max(once, 1e-9))))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection in the middle of a sample would be counted as the function's."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


__all__ = ["Call", "Samples", "measure", "seconds_of"]
