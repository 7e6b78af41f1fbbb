"""Which of many arrays share memory, by where they begin and end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Generic, TypeVar

from dynagraph.array_libraries import Place

Key = TypeVar("Key")


class Extents(Generic[Key]):
    """Places in memory, each with a key.

    Those that overlap, by way of others too, are one cluster.  Clusters are kept in order, so a place is found in logarithmic time.
    """

    def __init__(self) -> None:
        self._devices: dict[int, _Clusters[Key]] = {}

    def add(self, place: Place, key: Key) -> None:
        device, low, high = place
        if low < high:  # what has no elements shares nothing
            self._devices.setdefault(device, _Clusters()).add(low, high, key)

    def overlapping(self, place: Place) -> list[Key]:
        """The keys of places that share a byte with this one."""
        device, low, high = place
        clusters = self._devices.get(device)
        return [] if clusters is None or low == high else clusters.overlapping(low, high)


class _Clusters(Generic[Key]):
    def __init__(self) -> None:
        self.lows: list[int] = []
        self.highs: list[int] = []
        self.members: list[list[tuple[int, int, Key]]] = []

    def _touched(self, low: int, high: int) -> slice:
        return slice(bisect_right(self.highs, low), bisect_left(self.lows, high))

    def add(self, low: int, high: int, key: Key) -> None:
        touched = self._touched(low, high)
        members = [m for cluster in self.members[touched] for m in cluster]
        members.append((low, high, key))
        self.lows[touched] = [min(low, *self.lows[touched])] if len(members) > 1 else [low]
        self.highs[touched] = [max(high, *self.highs[touched])] if len(members) > 1 else [high]
        self.members[touched] = [members]

    def overlapping(self, low: int, high: int) -> list[Key]:
        touched = self.members[self._touched(low, high)]
        return [key for cluster in touched for begin, end, key in cluster if begin < high and low < end]
