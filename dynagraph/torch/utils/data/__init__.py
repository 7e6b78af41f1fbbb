"""``torch.utils.data``: datasets, samplers, and the DataLoader."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.utils.data.collate import default_collate, default_convert
from dynagraph.torch.utils.data.dataloader import DataLoader
from dynagraph.torch.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from dynagraph.torch.utils.data.distributed import DistributedSampler
from dynagraph.torch.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from dynagraph.torch.utils.data.workers import get_worker_info

__getattr__ = getattr_of(__name__)
__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterableDataset",
    "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset",
    "WeightedRandomSampler", "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip
