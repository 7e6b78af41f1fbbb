"""torch.multiprocessing: memory that processes share, through queues, pipes and arguments; processes that fail or are killed."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
import queue
import resource
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph.torch.multiprocessing as mp
from dynagraph import torch
from dynagraph.torch.core.memory_files import mapping_of
from dynagraph.torch.multiprocessing import messages
from tests.torch.multiprocessing import functions

FORK = mp.get_context("fork")


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(os.listdir("/dev/shm"))
    yield
    left = multiprocessing.active_children()
    for process in left:  # so that a test that fails does not fail the next ones
        process.kill()
        process.join()
    assert not left
    assert not {name for name in os.listdir("/dev/shm") if name not in before and "dynagraph" in name}


def through(value: Any) -> Any:
    """What another process would receive; here both ends are in one process."""
    receiver, sender = mp.Pipe(duplex=False)
    with receiver, sender:
        sender.send(value)
        return receiver.recv()


def own_copy(value: Any) -> Any:
    """What another process receives, as one that does not have the memory yet: the other process sends it on."""
    there, back = FORK.Queue(), FORK.Queue()
    process = FORK.Process(target=functions.echo, args=(0, there, back))
    process.start()
    there.put(value)
    found = back.get()
    there.put(None)
    process.join()
    return found


# -- tensors that share ------------------------------------------------------------------------------------------------


def test_moving_into_shared_memory() -> None:
    x = torch.arange(6.0)
    view = x[2:]
    assert not x.is_shared()
    assert view.share_memory_() is view
    assert x.is_shared() and x.data.is_shared() and x.untyped_storage().is_shared() and not (x + 1).is_shared()
    x[3] = 9
    assert view.tolist() == [2, 9, 4, 5]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_writes_what_the_other_reads(method: str) -> None:
    context = mp.get_context(method)
    model, x, y = torch.nn.Linear(3, 2), torch.zeros(3), torch.ones(3)
    there, back = context.Queue(), context.Queue()
    model.share_memory()
    x.share_memory_()
    started = mp.start_processes(functions.change, (model, x, there, back), join=False, start_method=method)
    there.put(y)
    whole, part = back.get()
    back.put(None)
    while not started.join():
        pass
    assert model.weight.tolist() == [[2, 2, 2], [2, 2, 2]] and x.tolist() == [1, 1, 1]
    assert y.tolist() == whole.tolist() == [2, 2, 2]
    assert whole.untyped_storage() is y.untyped_storage() is part.untyped_storage()  # a buffer that comes back is the one that went


def test_views_arrive_sharing() -> None:
    x = torch.arange(12).reshape(3, 4)
    a, b, c = through([x.T, x[1:, ::2], x.untyped_storage()])
    assert a.tolist() == x.T.tolist() and a.stride() == (1, 4) and b.tolist() == [[4, 6], [8, 10]]
    assert a.untyped_storage() is b.untyped_storage() is c is x.untyped_storage()
    b[0, 0] = 99
    assert x[1, 0].item() == 99


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.uint8, torch.float16])
def test_dtypes(dtype: Any) -> None:
    x = torch.ones(2, 3).to(dtype)
    found = through(x)
    assert found.dtype is dtype and found.tolist() == x.tolist()


def test_shapes_without_elements_or_dimensions() -> None:
    empty, number = through([torch.empty(0, 3), torch.tensor(4.0)])
    assert empty.shape == (0, 3) and number.shape == () and number.item() == 4


def test_parameters_and_gradients() -> None:
    parameter, leaf, frozen = through(
        [torch.nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(1), False)]
    )
    assert type(parameter) is torch.nn.Parameter and parameter.requires_grad and type(leaf) is torch.Tensor and leaf.requires_grad
    assert type(frozen) is torch.nn.Parameter and not frozen.requires_grad
    given = torch.ones(2, requires_grad=True)
    given.grad = torch.ones(2)
    assert through(given).grad is None
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor which requires_grad"):
        through(leaf * 2)
    assert through(given[:1].detach()).tolist() == [1]


def test_gradients_of_a_shared_module_are_shared() -> None:
    model = torch.nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    model.share_memory()
    assert model.weight.grad.is_shared()
    process = FORK.Process(target=lambda: model.weight.grad.add_(1))
    process.start()
    process.join()
    assert model.weight.grad.tolist() == [[2, 2]]


def test_tied_parameters_stay_tied() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model.share_memory()
    found = through(model)
    assert found[0].weight is found[1].weight and torch.equal(found[0].weight, model[0].weight)


class Tagged(torch.Tensor):  # type: ignore[misc]
    pass


def test_what_else_messages_hold() -> None:
    large = np.arange(10_000.0)
    text, array, tagged, pipe = through(["text" * 5000, large, torch.ones(2).as_subclass(Tagged), mp.SimpleQueue()._writer])
    assert text == "text" * 5000 and np.array_equal(array, large) and type(tagged) is Tagged and tagged.tolist() == [1, 1]
    assert type(pipe).__name__ == "Connection"
    array[0] = 5  # a copy of its own
    assert large[0] == 0


def test_multiprocessing_itself_shares() -> None:
    x = torch.zeros(3)
    there = multiprocessing.get_context("fork").SimpleQueue()
    process = FORK.Process(target=lambda: there.get().fill_(7))
    process.start()
    there.put(x)
    process.join()
    assert x.tolist() == [7, 7, 7]
    there.close()


def test_pickles_elsewhere_are_copies() -> None:
    x = torch.zeros(3).share_memory_()
    copy = pickle.loads(pickle.dumps(x))
    x.fill_(1)
    assert copy.tolist() == [0, 0, 0] and not copy.is_shared()


def test_a_storage_that_was_resized_since() -> None:
    x = torch.zeros(3)
    first = own_copy(x)
    assert first.untyped_storage() is x.untyped_storage()
    x.untyped_storage().resize_(64)
    x.fill_(5)
    assert own_copy(x).tolist() == [5, 5, 5]


# -- queues ------------------------------------------------------------------------------------------------------------


def test_a_queue_is_one_of_multiprocessing() -> None:
    given: Any = mp.Queue(maxsize=1)
    with pytest.raises(queue.Empty):
        given.get(timeout=0.01)
    with pytest.raises(queue.Empty):
        given.get_nowait()
    given.put(1)
    with pytest.raises(queue.Full):
        given.put(2, timeout=0.01)
    assert given.qsize() == 1 and given.get() == 1
    with pytest.raises(TypeError, match="cannot pickle"):
        given.put(threading.Lock())
    given.put(3)  # the place of what was not put is free
    assert given.get() == 3
    given.close()
    given.join_thread()
    with pytest.raises(ValueError, match="is closed"):
        given.put(4)


def test_joinable_queues_and_pools() -> None:
    tasks = FORK.JoinableQueue()
    tasks.put(torch.ones(2))
    assert tasks.get().tolist() == [1, 1]
    tasks.task_done()
    tasks.join()
    tasks.close()
    with FORK.Pool(2) as pool:
        assert [x.tolist() for x in pool.map(_doubled, [torch.ones(1), torch.zeros(2)])] == [[2], [0, 0]]
        pool.close()
        pool.join()


def _doubled(x: Any) -> Any:
    return x * 2


def test_messages_outlive_their_sender() -> None:
    """Descriptors wait in the kernel, so that a process may end once it has sent."""
    back = FORK.SimpleQueue()
    process = FORK.Process(target=lambda: back.put([torch.ones(3), "text" * 9000]))
    process.start()
    process.join()
    x, text = back.get()
    assert x.tolist() == [1, 1, 1] and len(text) == 36_000
    back.close()


def test_many_tensors_in_one_message() -> None:
    """More than the kernel takes in one go."""
    before = descriptors()
    found = through([torch.full((1,), float(k)) for k in range(300)])
    assert [x.item() for x in found] == list(range(300))
    del found
    assert descriptors() == before


def test_a_sender_waits_while_too_many_descriptors_are_under_way() -> None:
    class Full:
        calls = 0

        def sendmsg(self, data: Any, extra: Any) -> int:
            self.calls += 1
            if self.calls < 3:
                raise OSError(errno.ETOOMANYREFS, "Too many references")
            return sum(map(len, data))

    to: Any = Full()
    assert messages._send(to, [b"ab"], [0]) == 2 and to.calls == 3


def test_too_many_descriptors_say_so() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    receiver, sender = mp.Pipe(duplex=False)
    sender.send([torch.zeros(1) for _ in range(20)])
    kept = [os.dup(0) for _ in range(8)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(kept) + 4, limits[1]))
        with pytest.raises(OSError, match=r"Too many open files.*set_sharing_strategy"):
            receiver.recv()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for file in kept:
            os.close(file)
        receiver.close()
        sender.close()


def test_strategies() -> None:
    assert mp.get_all_sharing_strategies() == {"file_descriptor", "file_system"}
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        mp.set_sharing_strategy("file_system")
        assert mp.get_sharing_strategy() == "file_system"
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == limits[1]
    finally:
        mp.set_sharing_strategy("file_descriptor")
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with pytest.raises(AssertionError, match="invalid sharing strategy 'names'"):
        mp.set_sharing_strategy("names")


def test_no_memory_is_an_error() -> None:
    """Not a signal at a later write."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    x = torch.ones(1000)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            x.share_memory_()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert x.sum().item() == 1000 and not x.is_shared()


# -- processes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("raise", mp.ProcessRaisedException, r"-- Process 1 terminated with the following error:\n(?s:.*)ValueError: wrong sample"),
        ("exit", mp.ProcessExitedException, r"process 1 terminated with exit code 3"),
        ("9", mp.ProcessExitedException, r"process 1 terminated with signal SIGKILL"),
    ],
)
def test_a_process_that_fails_ends_the_others(kind: str, error: type, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        mp.start_processes(functions.act, (kind,), nprocs=3, start_method="fork")
    failed: Any = caught.value
    assert failed.error_index == 1 and failed.error_pid > 0
    assert str(pickle.loads(pickle.dumps(failed))) == str(failed)


def holders(inode: int) -> list[int]:
    """The processes that have a memory file, as a descriptor or mapped."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text()
            files = [os.stat(file).st_ino for file in (process / "fd").iterdir() if "memfd:dynagraph" in os.readlink(file)]
        except OSError:
            continue
        if inode in files or any("memfd:dynagraph" in line and line.split()[4] == str(inode) for line in maps.splitlines()):
            found.append(int(process.name))
    return found


@pytest.mark.parametrize("killed", ["receiver", "sender"])
def test_memory_is_gone_whoever_is_killed(killed: str) -> None:
    there, ready, release = FORK.SimpleQueue(), FORK.SimpleQueue(), FORK.Event()
    inode = FORK.Value("q", 0)

    def send() -> None:
        x = torch.ones(100_000).share_memory_()
        mapping = mapping_of(x._storage.array)
        assert mapping is not None
        inode.value = os.fstat(mapping.file).st_ino  # before the other end has it, and says so
        there.put(x)
        release.wait()

    processes = {
        "sender": FORK.Process(target=send), "receiver": FORK.Process(target=functions.hold, args=(0, there, ready, release))
    }  # fmt: skip
    for process in processes.values():
        process.start()
    assert ready.get() == 100_000
    pids = {name: process.pid for name, process in processes.items()}
    assert set(holders(inode.value)) == set(pids.values())
    os.kill(pids[killed], signal.SIGKILL)
    processes.pop(killed).join()
    (other,) = processes.values()
    assert holders(inode.value) == [other.pid]
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    assert holders(inode.value) == []


def test_processes_end_with_their_parent() -> None:
    """Which is killed."""
    back = FORK.SimpleQueue()

    def parent() -> None:
        started = mp.start_processes(functions.act, ("9",), nprocs=1, join=False, start_method="fork")
        back.put(started.pids()[0])
        time.sleep(60)

    process = FORK.Process(target=parent)
    process.start()
    pid = back.get()
    time.sleep(1.0)  # it has asked for that
    process.kill()
    process.join()
    until = time.monotonic() + 40
    while os.path.exists(f"/proc/{pid}") and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.02)
