"""Tensors on GPUs between processes: on the stand-in for CuPy, whose handles are files, and on a GPU where there is one."""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from multiprocessing import context, popen_spawn_posix, reduction
from typing import Any

import pytest

import dynagraph.torch as torch
import dynagraph.torch.multiprocessing as mp
from dynagraph.cuda import shared_memory
from dynagraph.cuda.state import State, state
from dynagraph.errors import CudaError
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.conftest import installed, real_cupy
from tests.torch.multiprocessing import functions

FORK = mp.get_context("fork")


@pytest.fixture
def unused() -> Iterator[None]:
    """CUDA has not been used yet, so that processes may be forked that use it."""
    before = dict(vars(state))
    vars(state).update(vars(State()))
    yield
    vars(state).clear()
    vars(state).update(before)


class Other:
    """A forked process with a machine of its own, which does what it is told."""

    def __init__(self) -> None:
        self.pipe, there = mp.Pipe()
        self.process = FORK.Process(target=self._serve, args=(there, self.pipe))
        self.process.start()
        there.close()

    @staticmethod
    def _serve(pipe: Any, other: Any) -> None:
        other.close()
        with installed(stand_in.module()) as cupy:
            kept: dict[str, Any] = {}
            while True:
                work, given = pipe.recv()
                try:
                    answer = work(cupy, kept, given)
                except Exception as error:
                    answer = error
                del given
                pipe.send(answer)

    def tell(self, work: Callable[[Any, dict[str, Any], Any], Any], given: Any = None) -> None:
        self.pipe.send((work, given))

    def ask(self, work: Callable[[Any, dict[str, Any], Any], Any], given: Any = None) -> Any:
        self.tell(work, given)
        return self.pipe.recv()

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


@pytest.fixture
def other(unused: None) -> Iterator[Other]:
    made = Other()
    yield made
    made.end()


@pytest.fixture
def cupy(other: Other) -> Iterator[Any]:
    with installed(stand_in.module()) as module:
        yield module
        other.end()
        gc.collect()
        shared_memory.collect()
        assert not module.machine.allocations and not shared_memory._sent and not shared_memory._claims
        assert module.machine.mistakes == []


def allocations(cupy: Any) -> int:
    """Those that are left when what nobody has is freed."""
    gc.collect()
    torch.cuda.ipc_collect()
    return len(cupy.machine.allocations)


# -- what the other process does ----------------------------------------------------------------------------------------


def keep(cupy: Any, kept: dict[str, Any], x: Any) -> Any:
    kept["x"] = x
    return [list(map(_about, x)), len({each.untyped_storage() for each in x}), len(cupy.machine.opened)]


def _about(x: Any) -> Any:
    return type(x).__name__, str(x.device), x.tolist(), x.stride(), x.requires_grad


def add_one(cupy: Any, kept: dict[str, Any], x: Any) -> Any:
    with torch.no_grad():
        x.add_(1)
    return x.untyped_storage() is kept["x"][0].untyped_storage()


def read(cupy: Any, kept: dict[str, Any], x: Any) -> Any:
    return kept["x"][0].tolist()


def forget(cupy: Any, kept: dict[str, Any], x: Any) -> Any:
    for queue in cupy.machine.queues:
        queue.add(lambda: None)  # what may use it
    del kept["x"]
    return len(cupy.machine.opened), cupy.machine.mistakes


def send_on(cupy: Any, kept: dict[str, Any], x: Any) -> Any:
    receiver, sender = mp.Pipe()
    with receiver, sender:
        sender.send(x)


def make(cupy: Any, kept: dict[str, Any], x: Any) -> Any:
    kept["made"] = torch.arange(3.0, device="cuda:1")
    return kept["made"]


# -- tests --------------------------------------------------------------------------------------------------------------


def test_both_processes_have_the_memory(cupy: Any, other: Other) -> None:
    x = torch.zeros(2, 3, device="cuda:1", requires_grad=True)
    weight = torch.nn.Parameter(torch.ones(2, device="cuda"))
    about, storages, opened = other.ask(keep, [x, x.detach().T, weight, torch.empty(0, 3, device="cuda")])
    assert about == [
        ("Tensor", "cuda:1", [[0, 0, 0], [0, 0, 0]], (3, 1), True), ("Tensor", "cuda:1", [[0, 0]] * 3, (1, 3), False),
        ("Parameter", "cuda:0", [1, 1], (1,), True), ("Tensor", "cuda:0", [], (3, 1), False),
    ]  # fmt: skip
    assert storages == 3 and opened == 2
    assert other.ask(add_one, x) and other.ask(add_one, x[1].detach())  # the storage that it has already
    assert x.tolist() == [[1, 1, 1], [2, 2, 2]]
    with torch.no_grad():
        x[0] = 7
    assert other.ask(read) == [[7, 7, 7], [2, 2, 2]]
    del x, weight
    assert allocations(cupy) == 2  # the other process has them
    assert other.ask(forget) == (0, [])
    assert allocations(cupy) == 0


def test_work_that_was_queued_is_done_before(cupy: Any, other: Other) -> None:
    with torch.cuda.Stream():
        x = torch.ones(1000).pin_memory().to("cuda", non_blocking=True)
        assert other.ask(keep, [x])[0][0][2] == [1.0] * 1000
    done: list[int] = []
    cupy.machine.queues[0].add(lambda: done.append(1))
    other.tell(read, x)
    assert done and other.pipe.recv() == [1.0] * 1000


def test_memory_is_an_allocation_of_its_own_and_stays_while_it_is_on_its_way(cupy: Any, other: Other) -> None:
    neighbour, x = torch.ones(3, device="cuda"), torch.ones(3, device="cuda")
    receiver, sender = mp.Pipe(duplex=False)
    sender.send([x, x[1:]])
    assert x.data_ptr() in cupy.machine.allocations and neighbour.data_ptr() not in cupy.machine.allocations
    assert all(len(memory) % shared_memory.BLOCK == 0 for _, memory in cupy.machine.allocations.values())
    del x
    assert allocations(cupy) == 1
    found, part = receiver.recv()  # in the process that sent it, where CUDA does not open handles
    assert found.tolist() == [1, 1, 1] and part.untyped_storage() is found.untyped_storage()
    sender.send(found)
    assert receiver.recv().untyped_storage() is found.untyped_storage()
    sender.send(found)
    del found, part
    assert allocations(cupy) == 1
    receiver.close()  # the message is lost
    sender.close()
    assert allocations(cupy) == 0


def test_a_receiver_that_is_killed(cupy: Any, other: Other) -> None:
    other.ask(keep, [torch.ones(3, device="cuda")])
    assert allocations(cupy) == 1
    os.kill(other.process.pid, signal.SIGKILL)
    other.process.join()
    assert allocations(cupy) == 0


def test_a_sender_that_is_killed(cupy: Any, other: Other) -> None:
    other.tell(make)
    while not other.pipe.poll(1):
        pass
    os.kill(other.process.pid, signal.SIGKILL)
    other.process.join()
    with pytest.raises(CudaError, match=r"received after the process that sent it has ended: it has to live as long"):
        other.pipe.recv()


def test_what_was_received_is_not_sent_on(cupy: Any, other: Other) -> None:
    found = other.ask(make)
    assert found.tolist() == [0, 1, 2] and str(found.device) == "cuda:1"
    with pytest.raises(RuntimeError, match=r"received from another process cannot be sent on.*Send x\.clone\(\)"):
        other.pipe.send(found)
    assert other.ask(keep, [found.clone()])[0][0][2] == [0, 1, 2]
    error = other.ask(send_on, torch.ones(1, device="cuda"))
    assert "cannot be sent on" in str(error)


def test_a_capture_is_not_disturbed(cupy: Any, other: Other) -> None:
    found, stream = other.ask(make), cupy.cuda.Stream()
    with stream:
        stream.begin_capture()
        del found
        gc.collect()
        assert cupy.machine.opened
        stream.end_capture()
    torch.cuda.ipc_collect()
    assert not cupy.machine.opened


def test_a_child_that_cannot_use_cuda(cupy: Any, other: Other) -> None:
    """It was forked after its parent used CUDA.  What it has of claims is closed."""
    queue, back = FORK.Queue(), FORK.Queue()
    kept = torch.ones(2, device="cuda")
    other.ask(keep, [kept])

    def receive() -> None:
        try:
            queue.get()
        except CudaError as error:
            back.put(str(error))
        back.put(len(shared_memory._sent))
        queue.get()

    child = FORK.Process(target=receive)
    child.start()
    queue.put(torch.ones(3, device="cuda"))
    assert 'start processes with multiprocessing.get_context("spawn")' in back.get() and back.get() == 0
    assert allocations(cupy) == 1  # what the child could not take is freed
    del kept
    other.ask(forget)
    assert allocations(cupy) == 0
    queue.put(None)
    child.join()


def test_a_process_that_does_not_see_the_gpu(cupy: Any, other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceProperties", lambda device: {"uuid": bytes([9] * 16)})
    with pytest.raises(CudaError, match=r"sent to a process that does not see this GPU: let CUDA_VISIBLE_DEVICES"):
        other.ask(make)


class Starting:
    """A process that is being started, as `multiprocessing` keeps it: it gets descriptors once its arguments are pickled."""

    DupFd = popen_spawn_posix._DupFd

    def __init__(self) -> None:
        self.files: list[int] = []

    def duplicate_for_child(self, file: int) -> int:
        self.files.append(file)
        return file


def test_arguments_of_new_processes(cupy: Any, other: Other) -> None:
    starting = Starting()
    context.set_spawning_popen(starting)
    try:
        data = reduction.ForkingPickler.dumps([torch.ones(2, device="cuda")]).tobytes()
    finally:
        context.set_spawning_popen(None)
    assert allocations(cupy) == 1
    (file,) = starting.files
    there = os.dup(file)
    starting.pid = 1  # type: ignore[attr-defined]
    assert allocations(cupy) == 1
    os.dup2(there, file)  # the number that the new process has it by
    os.close(there)
    (found,) = pickle.loads(data)
    assert found.tolist() == [1, 1]
    del found
    assert allocations(cupy) == 0


@pytest.mark.skipif(real_cupy() is None, reason="needs a GPU")
@pytest.mark.parametrize("as_argument", [False, True])
def test_on_a_gpu(as_argument: bool) -> None:
    spawning = mp.get_context("spawn")
    x, queue, back = torch.zeros(1000, device="cuda"), spawning.Queue(), spawning.Queue()
    process = spawning.Process(target=functions.add_on_gpu, args=(x if as_argument else None, queue, back))
    process.start()
    queue.put(x[10:20])
    queue.put(x)
    assert back.get(timeout=60) == [0.0, True]
    assert x.sum().item() == 1010
    x.fill_(2)
    torch.cuda.synchronize()
    queue.put(None)
    assert back.get(timeout=60) == [2000.0]
    process.join()
    assert process.exitcode == 0
    memories = len(shared_memory._own)
    del x
    gc.collect()
    torch.cuda.ipc_collect()
    process._args = ()
    assert not shared_memory._sent and len(shared_memory._own) == memories - 1
