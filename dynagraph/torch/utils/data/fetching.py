"""What a DataLoader does with a dataset and a batch's indices, in the process itself and in workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.failures import Failure


class Exhausted(Exception):
    """An iterable dataset has no more samples."""


class OfMap:
    """Fetches samples by index."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool):
        self.dataset, self.auto_collation, self.collate_fn = dataset, auto_collation, collate_fn

    def fetch(self, indices: Any) -> Any:
        """The batch of a list of indices, or the sample of one."""
        if not self.auto_collation:
            return self.collate_fn(self.dataset[indices])
        many = getattr(self.dataset, "__getitems__", None)
        return self.collate_fn(many(indices) if many else [self.dataset[index] for index in indices])


class OfIterable:
    """Fetches as many samples as there are indices, which say nothing else."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool):
        self.samples = iter(dataset)
        self.auto_collation, self.collate_fn, self.drop_last = auto_collation, collate_fn, drop_last
        self.ended = False

    def fetch(self, indices: Any) -> Any:
        """The next batch or sample; Exhausted where there is none."""
        if self.ended:
            raise Exhausted
        if not self.auto_collation:
            try:
                sample = next(self.samples)
            except StopIteration:
                raise Exhausted from None
            return self.collate_fn(sample)
        batch = []
        for _ in indices:
            try:
                batch.append(next(self.samples))
            except StopIteration:
                self.ended = True
                break
        if not batch or (self.drop_last and len(batch) < len(indices)):
            raise Exhausted
        return self.collate_fn(batch)


__all__ = ["Exhausted", "Failure", "OfIterable", "OfMap"]
