"""Workers of a DataLoader: faults, memory, resuming.  Orders and errors as PyTorch's are in tests/torch/behaviours/data.py."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynagraph import torch
from dynagraph.torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset


class Numbers(Dataset):  # type: ignore[type-arg]
    """Does something at one index."""

    def __init__(self, at: int = -1, act: Any = None):
        self.at, self.act = at, act

    def __len__(self) -> int:
        return 12

    def __getitem__(self, k: int) -> int:
        if k == self.at:
            self.act()
        return k


@pytest.fixture(autouse=True, scope="module")
def _first_use() -> None:
    """What a process opens once, with its first worker that is killed."""
    with pytest.raises(RuntimeError):
        list(DataLoader(Numbers(0, lambda: os.kill(os.getpid(), signal.SIGKILL)), num_workers=1))


def descriptors() -> int:
    gc.collect()  # what frames of exceptions have held
    return len(os.listdir("/proc/self/fd"))


def no_children() -> bool:
    return not multiprocessing.active_children()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_is_named_with_its_signal(number: signal.Signals) -> None:
    counts = []
    for _ in range(3):
        with pytest.raises(RuntimeError, match=rf"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly: .*{number.name}"):
            list(DataLoader(Numbers(5, lambda: os.kill(os.getpid(), number)), num_workers=2))
        counts.append(descriptors())
    assert counts[1] == counts[2]  # what the last exception's frames hold is the same each time
    assert no_children()


def test_a_worker_that_exits() -> None:
    with pytest.raises(RuntimeError, match="exited with code 3"):
        list(DataLoader(Numbers(5, lambda: os._exit(3)), num_workers=2))


def test_timeout() -> None:
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.2 seconds"):
        list(DataLoader(Numbers(0, lambda: time.sleep(3)), num_workers=1, timeout=0.2))


def test_a_traceback_of_a_worker() -> None:
    def act() -> None:
        raise ValueError("wrong sample")

    with pytest.raises(ValueError, match=r"Caught ValueError in DataLoader worker process \d\.\nOriginal Traceback") as error:
        list(DataLoader(Numbers(3, act), num_workers=2))
    assert "in act" in str(error.value)


def test_an_error_of_the_init_function() -> None:
    def init(worker: int) -> None:
        raise OSError(f"no device for {worker}")

    with pytest.raises(OSError, match="no device for"):
        list(DataLoader(Numbers(), num_workers=2, worker_init_fn=init))


def test_leaving_in_the_middle_of_a_pass() -> None:
    before = descriptors()
    for _ in range(3):
        batches = iter(DataLoader(Numbers(), num_workers=2))
        next(batches)
        del batches
    assert descriptors() == before
    assert no_children()


def test_workers_end_beside_those_of_another_loader() -> None:
    """Which have been forked with copies of their pipes."""
    first = iter(DataLoader(Numbers(), num_workers=1))
    second = iter(DataLoader(Numbers(), num_workers=1))
    next(first), next(second)
    begun = time.monotonic()
    del first
    assert time.monotonic() - begun < 4  # none had to be ended by a signal
    assert len(multiprocessing.active_children()) == 1
    del second


def test_large_batches_leave_no_descriptors() -> None:
    rows = TensorDataset(torch.arange(64.0).reshape(64, 1).expand(64, 5000).contiguous())
    before = descriptors()
    seen = 0
    for (batch,) in DataLoader(rows, batch_size=8, num_workers=2):
        assert batch.shape == (8, 5000) and batch[0, 0].item() == seen * 8
        batch.add_(1)  # memory of its own
        seen += 1
    assert seen == 8
    del batch
    assert descriptors() == before


def test_batches_outlive_their_worker() -> None:
    kept = [batch for (batch,) in DataLoader(TensorDataset(torch.ones(4, 5000)), num_workers=2)]
    assert no_children()
    assert all(bool((batch == 1).all()) for batch in kept)


class Draws(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, k: int) -> Any:
        return torch.rand(1).item(), np.random.rand()


def test_draws_of_workers_follow_the_seed() -> None:
    def drawn() -> list[Any]:
        torch.manual_seed(7)
        return [batch.tolist() for batches in DataLoader(Draws(), num_workers=2, batch_size=2) for batch in batches]

    first = drawn()
    assert first == drawn()
    assert len({value for batch in first for value in batch}) == 16


def drawn(workers: int, state: Any = None, take: int | None = None, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(7)
    loader = DataLoader(Draws(), num_workers=workers, batch_size=2, **options)
    if state is not None:
        loader.load_state_dict(state)
    batches = iter(loader)
    found = [[part.tolist() for part in batch] for batch in itertools.islice(batches, take)]
    return found, loader.state_dict()


def test_draws_are_the_same_for_any_number_of_workers() -> None:
    whole, _ = drawn(1)
    assert whole == drawn(3)[0]
    some, state = drawn(2, take=1)
    assert some + drawn(1, state)[0] == whole


def test_workers_that_stay_draw_anew_in_each_pass() -> None:
    loader = DataLoader(Draws(), num_workers=1, batch_size=4, persistent_workers=True)
    passes = [[batch[0].tolist() for batch in loader] for _ in range(2)]
    assert passes[0] != passes[1]
    del loader


def test_an_init_function_seeds_its_worker() -> None:
    def init(worker: int) -> None:
        np.random.seed(worker)

    batch = next(iter(DataLoader(Draws(), num_workers=1, batch_size=2, worker_init_fn=init)))
    assert batch[1].tolist() == np.random.RandomState(0).rand(2).tolist()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"shuffle": True, "drop_last": True}])
def test_resuming(workers: int, options: dict[str, Any]) -> None:
    def loader() -> Any:
        return DataLoader(range(20), batch_size=3, num_workers=workers, **options)

    torch.manual_seed(1)
    interrupted = loader()
    batches = iter(interrupted)
    given = [next(batches).tolist() for _ in range(3)]
    state = interrupted.state_dict()
    rest = [batch.tolist() for batch in batches]
    torch.manual_seed(9)
    resumed = loader()
    resumed.load_state_dict(state)
    assert [batch.tolist() for batch in resumed] == rest
    assert given + rest == given + [b for b in rest if b not in given]
    assert len([*resumed]) == len(resumed)  # the next pass is whole


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter(range(9))


def test_resuming_a_stream() -> None:
    interrupted = DataLoader(Stream(), batch_size=2)
    batches = iter(interrupted)
    next(batches), next(batches)
    resumed = DataLoader(Stream(), batch_size=2)
    resumed.load_state_dict(interrupted.state_dict())
    assert [batch.tolist() for batch in resumed] == [[4, 5], [6, 7], [8]]


def test_wrong_states() -> None:
    with pytest.raises(ValueError, match=r"expected what DataLoader\.state_dict"):
        DataLoader(range(3)).load_state_dict({"epoch": 1})


def test_out_of_order() -> None:
    slow = Numbers(0, lambda: time.sleep(0.5))
    found = [batch.item() for batch in DataLoader(slow, num_workers=2, in_order=False)]
    assert sorted(found) == list(range(12)) and found[0] != 0


def test_workers_without_a_parent_end(tmp_path: Path) -> None:
    """The process that iterates is killed."""
    path = tmp_path / "pid"
    pid = os.fork()
    if not pid:
        try:
            batches = iter(DataLoader(Numbers(), num_workers=1, worker_init_fn=lambda _: path.write_text(str(os.getpid()))))
            next(batches)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    worker = int(path.read_text())
    until = time.monotonic() + 10
    while time.monotonic() < until and os.path.exists(f"/proc/{worker}"):
        with open(f"/proc/{worker}/stat") as status:
            if status.read().rpartition(")")[2].split()[0] == "Z":
                break
        time.sleep(0.02)
    else:
        assert not os.path.exists(f"/proc/{worker}")
