"""Memory of batches goes back to the worker that made them, and not before nobody sees them any more."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph.torch.multiprocessing as mp
from dynagraph import torch
from dynagraph.torch.core.memory_files import allocate, mapping_of
from dynagraph.torch.multiprocessing.messages import Message, Received
from dynagraph.torch.multiprocessing.segments import OwnSegments, Segments
from dynagraph.torch.utils.data import DataLoader, Dataset, default_collate

N, SIZE = 64, 2000


class Rows(Dataset):  # type: ignore[type-arg]
    """Row k holds k."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, k: int) -> Any:
        return torch.full((SIZE,), float(k)), k


class Ragged(Rows):
    """Its rows are of other lengths in each batch."""

    def __getitem__(self, k: int) -> Any:
        return torch.full((100 + 700 * (k // 4 % 7),), float(k)), k


def is_right(batch: Any) -> bool:
    rows, numbers = batch
    return bool((rows == numbers.reshape(-1, 1)).all())


def iterator(dataset: Any = None, **options: Any) -> Any:
    options = {"num_workers": 2, "batch_size": 4, **options}
    return iter(DataLoader(dataset or Rows(), **options))


@pytest.mark.parametrize("dataset", [Rows(), Ragged()])
def test_memory_is_used_again(dataset: Any) -> None:
    """Each worker has at most as many segments as batches made ahead, and two."""
    batches = iterator(dataset)
    seen: list[Any] = []
    mapped = set()
    for batch in batches:
        assert is_right(batch)
        batch[0].add_(1000)  # the consumer's own
        seen.append(batch[1].tolist())
        mapped |= {id(mapping) for segments in batches.workers.segments for mapping in segments._mappings.values()}
        assert all(len(segments._mappings) <= 4 for segments in batches.workers.segments)
    assert seen == [list(range(k, k + 4)) for k in range(0, N, 4)]
    if type(dataset) is Rows:
        assert len(mapped) <= 8


def test_batches_of_ready_arrays_are_copied_into_it() -> None:
    class Ready(Rows):
        def __getitem__(self, k: int) -> Any:
            return torch.full((4, SIZE), float(k)), torch.full((4,), k)

    batches = iterator(Ready(), batch_size=None)
    assert all(map(is_right, batches))
    batches = iterator(Ready(), batch_size=None)
    for _ in range(20):
        last = next(batches)
    assert any(segments._mappings for segments in batches.workers.segments)
    assert is_right(last)


def test_kept_batches_stay() -> None:
    kept = list(iterator())
    assert [rows[:, -1].tolist() for rows, _ in kept] == [list(range(k, k + 4)) for k in range(0, N, 4)]


@pytest.mark.parametrize(
    "part",
    [
        lambda batch: batch[0][1],
        lambda batch: batch[0].numpy(),
        lambda batch: memoryview(batch[0].numpy())[1:],
        lambda batch: np.from_dlpack(batch[0]),
        lambda batch: batch[0].untyped_storage(),
        lambda batch: batch[0].T.reshape(2, -1)[:, ::2],
        lambda batch: torch.nn.Parameter(batch[0]),
    ],
    ids=["view", "array", "memoryview", "dlpack", "storage", "copy", "parameter"],
)
def test_a_part_of_a_batch_stays(part: Any) -> None:
    batches = iterator(persistent_workers=True)
    first = next(batches)
    kept = part(first)
    before = bytes(np.asarray(kept.detach() if isinstance(kept, torch.Tensor) else kept).tobytes())
    del first
    assert all(map(is_right, batches))
    assert np.asarray(kept.detach() if isinstance(kept, torch.Tensor) else kept).tobytes() == before


def test_batches_live_on_in_a_forked_process() -> None:
    batches = iterator()
    batch = next(batches)
    receiver, sender = os.pipe()
    answer, said = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(sender)
            os.read(receiver, 1)  # until the other end is closed
            os.write(said, b"1" if batch[0][:, 0].tolist() == [0, 1, 2, 3] and is_right(batch) else b"0")
        finally:
            os._exit(0)
    os.close(receiver)
    os.close(said)
    del batch
    assert all(map(is_right, batches))
    os.close(sender)
    assert os.read(answer, 1) == b"1"
    os.close(answer)
    os.waitpid(pid, 0)


def test_batches_that_are_sent_on() -> None:
    queue = mp.SimpleQueue()
    batches = iterator()
    queue.put(next(batches)[0])
    assert all(map(is_right, batches))
    assert (queue.get() == torch.arange(4.0).reshape(4, 1)).all()


class Caching:
    """Collates, and gives the same batches again in the next pass."""

    def __init__(self) -> None:
        self.made: dict[Any, Any] = {}

    def __call__(self, samples: Any) -> Any:
        key = samples[0][1]
        if key not in self.made:
            self.made[key] = default_collate(samples)
        return self.made[key]


def test_what_a_worker_keeps_is_its_own() -> None:
    """The consumer's writes do not reach it, and it is not written over."""
    loader = DataLoader(Rows(), batch_size=4, num_workers=1, persistent_workers=True, collate_fn=Caching())
    for _ in range(3):
        for batch in loader:
            assert is_right(batch)
            batch[0].zero_()
    del loader


def test_gradients_and_other_dtypes_are_collated_as_before() -> None:
    class Odd(Rows):
        def __getitem__(self, k: int) -> Any:
            return torch.full((SIZE,), float(k), dtype=torch.float64 if k % 2 else torch.float32), np.full(SIZE, k, np.int16)

    for k, (mixed, ints) in enumerate(iterator(Odd())):
        assert mixed.dtype == torch.float64 and ints.dtype == torch.int16
        assert mixed[:, 0].tolist() == ints[:, -1].tolist() == list(range(4 * k, 4 * k + 4))


# -- the protocol, without processes ------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[Any]:
    one, other = mp.Pipe()
    yield one, other
    one.close()
    other.close()


def exchanged(ends: Any, own: OwnSegments, theirs: Segments, value: Any) -> Any:
    sender, receiver = ends
    room = own.room()
    message = Message(value, copies=True, room=room)
    if room is not None:
        own.leave(room, message.is_in_room)
    sender.post(message)
    return Received(receiver, theirs).value()


def test_a_segment_is_away_until_nothing_of_it_is_left(ends: Any) -> None:
    own, theirs = OwnSegments(2), Segments()
    first = exchanged(ends, own, theirs, torch.ones(5000))
    view = first[10:].numpy()
    second = exchanged(ends, own, theirs, torch.full((5000,), 2.0))
    assert own.room() is None  # both are away
    third = exchanged(ends, own, theirs, torch.full((5000,), 3.0))  # has a file of its own
    del first
    assert theirs.returned() == []
    del view
    gc.collect()
    numbers = theirs.returned()
    assert len(numbers) == 1
    own.returned(numbers)
    fourth = exchanged(ends, own, theirs, torch.full((5000,), 4.0))
    assert [each[0].item() for each in (second, third, fourth)] == [2, 3, 4]


def test_a_segment_that_is_too_small_or_far_too_large_is_replaced(ends: Any) -> None:
    own, theirs = OwnSegments(1), Segments()
    sizes = []
    for n in (5000, 500_000, *[2000] * 80):
        value = exchanged(ends, own, theirs, torch.full((n,), float(n)))
        assert value.shape == (n,) and (value == n).all()
        sizes.append(theirs._mappings[0].nbytes)
        del value
        own.returned(theirs.returned())
    assert sizes[0] < sizes[1] and sizes[-1] < sizes[1] // 4


def test_a_message_that_is_not_sent_leaves_its_segment() -> None:
    own = OwnSegments(1)
    for _ in range(3):
        room = own.room()
        assert room is not None
        room.array((5000,), np.dtype("f4"))
        assert own.leave(room, False)


def test_a_lease_says_when_no_view_is_left() -> None:
    mapping = allocate(4096)
    lease = mapping.lease()
    assert (lease.address, lease.nbytes, lease.file) == (mapping.address, 4096, -1)
    array = np.frombuffer(lease, np.uint8)
    del mapping
    array[:] = 7
    assert mapping_of(array[5:]) is lease
    del lease
    assert array.sum() == 7 * 4096
