"""The part of a dataset that one of several processes takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.core.generator import Generator
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """The indices of one of `num_replicas` processes: every one takes as many, some indices twice if need be (`drop_last`: none).

    Call ``set_epoch(k)`` before each pass, so that each has another order.
    """

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True, seed: int = 0,
        drop_last: bool = False,
    ):  # fmt: skip
        if num_replicas is None or rank is None:
            if not dist.is_available():
                raise RuntimeError("Requires distributed package to be available")
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank, self.shuffle, self.seed = dataset, num_replicas, rank, shuffle, seed
        self.epoch, self.drop_last = 0, drop_last
        n = len(dataset)
        short = drop_last and n % num_replicas != 0
        self.num_samples = math.ceil((n - num_replicas) / num_replicas) if short else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if self.shuffle:
            generator = Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = NAMESPACES["torch"]["randperm"](n, generator=generator).tolist()
        else:
            indices = list(range(n))
        missing = self.total_size - len(indices)
        indices = indices[: self.total_size] if missing < 0 else indices + (indices * math.ceil(missing / max(n, 1)))[:missing]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass."""
        self.epoch = epoch


__all__ = ["DistributedSampler"]
