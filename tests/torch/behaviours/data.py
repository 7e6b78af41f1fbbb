"""torch.utils.data: orders of samples, batches, errors.  Random orders are of PyTorch's stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.torch.behaviours import behaviour, module_of, raised

LOADERS: dict[str, dict[str, Any]] = {
    "batches": {"batch_size": 3}, "whole batches": {"batch_size": 3, "drop_last": True}, "samples": {"batch_size": None},
    "shuffled": {"batch_size": 4, "shuffle": True}, "by workers": {"batch_size": 3, "num_workers": 2},
    "shuffled by workers": {"batch_size": 4, "shuffle": True, "num_workers": 2},
    "workers that stay": {"batch_size": 3, "shuffle": True, "num_workers": 2, "persistent_workers": True},
}  # fmt: skip


def of(torch: Any) -> Any:
    torch.manual_seed(3)
    return module_of(torch, "utils.data")


@behaviour
def passes(torch: Any) -> Any:
    """Two passes of each loader, and the next random number."""
    data = of(torch)
    rows = data.TensorDataset(torch.arange(10.0), torch.arange(10))
    found = []
    for name, options in LOADERS.items():
        loader = data.DataLoader(rows, **options)
        found.append((name, len(loader), [[[t.tolist() for t in batch] for batch in loader] for _ in range(2)]))
        generator = torch.Generator()
        generator.manual_seed(5)
        found.append([batch[1].tolist() for batch in data.DataLoader(rows, generator=generator, **options)])
    return found, torch.rand(1)


@behaviour
def samplers(torch: Any) -> Any:
    data = of(torch)
    part = data.DistributedSampler(range(11), num_replicas=3, rank=1)
    part.set_epoch(2)
    return (
        list(data.RandomSampler(range(5))), list(data.RandomSampler(range(5), replacement=True, num_samples=40)),
        list(data.RandomSampler(range(5), num_samples=12)), list(data.SubsetRandomSampler([1, 5, 7])),
        list(data.WeightedRandomSampler([0.1, 0.5, 0.2], 6)), list(data.BatchSampler(range(5), 2, True)), list(part),
        list(data.DistributedSampler(range(11), 3, 2, shuffle=False, drop_last=True)),
        [list(p.indices) for p in data.random_split(range(10), [0.3, 0.3, 0.4])],
        [list(p.indices) for p in data.random_split(range(7), [3, 4], generator=torch.Generator().manual_seed(2))],
    )  # fmt: skip


@behaviour
def collating(torch: Any) -> Any:
    data = of(torch)
    row = {"a": 1.5, "b": (1, "x"), "c": np.ones(2, "f"), "d": [torch.ones(2), np.int16(3)], "e": True}
    return (
        data.default_collate([row, row]), data.default_collate([np.float32(1), np.float32(2)]),
        data.default_convert({"a": np.ones(2), "b": [1, np.int64(3)], "c": (np.zeros(1), "t")}),
        raised(lambda: data.default_collate([object()])), raised(lambda: data.default_collate([[1], [1, 2]])),
    )  # fmt: skip


def _iterable(torch: Any, n: int) -> Any:
    data = module_of(torch, "utils.data")

    class Numbers(data.IterableDataset):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Any:
            worker = data.get_worker_info()
            return iter(range(n) if worker is None else range(worker.id, n, worker.num_workers))

        def __len__(self) -> int:
            return n

    return Numbers()


@behaviour
def iterables(torch: Any) -> Any:
    data = of(torch)
    return (
        [[batch.tolist() for batch in data.DataLoader(_iterable(torch, 7), batch_size=2, num_workers=n)] for n in (0, 2)],
        [[b.tolist() for b in data.DataLoader(_iterable(torch, 7), batch_size=2, num_workers=n, drop_last=True)] for n in (0, 2)],
        len(data.DataLoader(_iterable(torch, 7), batch_size=2)), list(data.DataLoader(_iterable(torch, 3), batch_size=None)),
        list(data.ChainDataset([_iterable(torch, 2), _iterable(torch, 3)])),
        raised(lambda: data.DataLoader(_iterable(torch, 7), shuffle=True)),
    )  # fmt: skip


@behaviour
def compositions(torch: Any) -> Any:
    data = of(torch)
    both, named = data.ConcatDataset([range(3), range(2)]), data.StackDataset(a=range(3), b=range(3))
    return (
        len(both), both[3], both[-1], raised(lambda: both[-9]), named[1], list(data.DataLoader(named, batch_size=2)),
        data.StackDataset(range(2), range(2))[1], data.Subset(range(10), [3, 4])[1], raised(lambda: data.ConcatDataset([])),
        raised(lambda: data.TensorDataset(torch.ones(2), torch.ones(3))), len(range_set(data) + range_set(data)),
    )  # fmt: skip


def range_set(data: Any) -> Any:
    return data.Subset(range(4), [0, 1, 2])


@behaviour
def refusals(torch: Any) -> Any:
    data = of(torch)
    given = range(4)
    return [
        raised(lambda options=options: data.DataLoader(given, **options))  # type: ignore[misc]
        for options in (
            {"num_workers": -1}, {"shuffle": True, "sampler": [1]}, {"batch_size": 0}, {"prefetch_factor": 2}, {"timeout": -1},
            {"batch_sampler": [[1]], "batch_size": 3}, {"batch_size": None, "drop_last": True}, {"persistent_workers": True},
        )
    ] + [
        raised(lambda: data.random_split(given, [3, 3])), raised(lambda: data.RandomSampler(given, num_samples=0)),
        raised(lambda: data.RandomSampler(given, replacement=1)), raised(lambda: data.WeightedRandomSampler([[1.0]], 1)),
        raised(lambda: data.DistributedSampler(given, 2, 3)),
    ]  # fmt: skip


def _failing(torch: Any) -> Any:
    class Failing(module_of(torch, "utils.data").Dataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 4

        def __getitem__(self, k: int) -> int:
            if k == 2:
                raise KeyError("what is asked for")
            return k

    return Failing()


@behaviour
def errors_of_datasets(torch: Any) -> Any:
    data = of(torch)
    return [raised(lambda n=n: list(data.DataLoader(_failing(torch), num_workers=n))).split("\n")[0] for n in (0, 2)]  # type: ignore[misc]
