"""The engine over sockets: its rings and trees with several ranks in one process; worlds of spawned processes; ranks that end."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from dynagraph import torch
from dynagraph.torch import distributed as dist
from dynagraph.torch import multiprocessing as mp
from dynagraph.torch.distributed import common_memory, mesh, rendezvous
from dynagraph.torch.distributed.common_memory import Blocks, Room
from dynagraph.torch.distributed.engines import DistNetworkError
from dynagraph.torch.distributed.mesh import Mesh, MisfitError
from dynagraph.torch.distributed.sockets import SocketEngine

SIZES = (0, 1, 7, 5000, 700_001)  # of float32: in messages from each to each, along trees, around rings of several blocks


def engines_of(count: int) -> list[SocketEngine]:
    connections: list[dict[int, socket.socket]] = [{} for _ in range(count)]
    for a, b in itertools.combinations(range(count), 2):
        connections[a][b], connections[b][a] = socket.socketpair()
    return [SocketEngine(Mesh(rank, mine), range(count)) for rank, mine in enumerate(connections)]


def end(requests: Sequence[Any]) -> None:
    until = time.monotonic() + 60
    while [request for request in requests if not request.Test()]:  # all of them are tested
        assert time.monotonic() < until


@pytest.fixture(params=[2, 3, 9])
def engines(request: pytest.FixtureRequest) -> Iterator[list[SocketEngine]]:
    made = engines_of(request.param)
    yield made
    for engine in made:
        engine.close()


def rows(count: int, nbytes: int) -> dict[int, np.ndarray]:
    return {rank: np.zeros(nbytes, np.uint8) for rank in range(count)}


@pytest.fixture(params=[2, 3, 5])
def neighbours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SocketEngine]]:
    """Engines of ranks that have memory in common, with small blocks."""
    monkeypatch.setattr(common_memory, "BLOCK", 1 << 16)
    made = engines_of(request.param)
    memory = rows(request.param, 4 << 16)
    for rank, engine in enumerate(made):
        engine.mesh.blocks = Blocks(Room(7, memory, rank))
        engine._use_common_memory()
    yield made
    for engine in made:
        engine.close()
        assert engine.mesh.blocks is not None and len(engine.mesh.blocks.free) == 4


def placed(engines: Sequence[SocketEngine], size: int) -> list[np.ndarray]:
    """Arrays in a room of the engines', each at another place."""
    memory, arrays = rows(len(engines), 8 * size + 1024), []
    for rank, engine in enumerate(engines):
        room = Room(11, memory, rank)
        engine.common.rooms.add(room)
        engine.kept = room  # type: ignore[attr-defined]
        arrays.append(memory[rank][64 * rank :][: 4 * size].view(np.float32))
        arrays[-1][...] = given(len(engines), size)[rank]
    return arrays


@pytest.mark.parametrize("size", [5000, 16384, 70_001])
@pytest.mark.parametrize("where", ["blocks", "room", "some in a room", "a rank without a block"])
def test_sums_in_common_memory(neighbours: list[SocketEngine], where: str, size: int) -> None:
    count = len(neighbours)
    total = np.minimum.reduce(given(count, size)), np.add.reduce(given(count, size))
    for op, expected in zip(("MIN", "SUM"), total):
        arrays = given(count, size) if where in ("blocks", "a rank without a block") else placed(neighbours, size)
        if where == "some in a room":
            arrays[1] = arrays[1].copy()
        if where == "a rank without a block":
            neighbours[1].common.close()  # type: ignore[union-attr]
        others = given(count, 20_000)  # begins before the first one has ended
        requests = [e.all_reduce(x, op) for e, x in zip(neighbours, arrays)]
        requests += [e.all_reduce(x, "SUM") for e, x in zip(neighbours, others)]
        end(requests)
        assert all(np.array_equal(x, expected) for x in arrays)
        assert all(np.array_equal(x, sum(given(count, 20_000))) for x in others)


@pytest.mark.parametrize("size", [5001, 40_000])
@pytest.mark.parametrize("where", ["blocks", "room", "some in a room"])
def test_other_collectives_in_common_memory(neighbours: list[SocketEngine], where: str, size: int) -> None:
    count = len(neighbours)
    size -= size % count

    def sources() -> list[np.ndarray]:
        arrays = given(count, size) if where == "blocks" else placed(neighbours, size)
        if where == "some in a room":
            arrays[1] = arrays[1].copy()
        return arrays

    whole = np.concatenate(given(count, size))
    for by in (1, count):
        totals = (sum(given(count, size)) / np.float32(by)).reshape(count, -1)
        arrays, targets = sources(), [np.empty(size // count, np.float32) for _ in range(count)]
        end([e.reduce_scatter(x, target, "SUM", by) for e, x, target in zip(neighbours, arrays, targets)])
        assert all(np.allclose(target, row, rtol=1e-6) for target, row in zip(targets, totals))
        assert all(np.array_equal(x, y) for x, y in zip(arrays, given(count, size)))
        arrays = sources()
        parts = [x.reshape(count, -1)[e.rank] for e, x in zip(neighbours, arrays)]  # of the sources themselves
        end([e.reduce_scatter(x, part, "SUM", by) for e, x, part in zip(neighbours, arrays, parts)])
        assert all(np.allclose(part, row, rtol=1e-6) for part, row in zip(parts, totals))
        arrays = sources()
        end([e.all_reduce(x, "SUM", by) for e, x in zip(neighbours, arrays)])
        assert all(np.allclose(x, totals.reshape(-1), rtol=1e-6) and np.array_equal(x, arrays[0]) for x in arrays)
        arrays = sources()
        end([e.reduce(x, "SUM", 1, by) for e, x in zip(neighbours, arrays)])
        assert np.allclose(arrays[1], totals.reshape(-1), rtol=1e-6)
        assert all(np.array_equal(x, y) for k, (x, y) in enumerate(zip(arrays, given(count, size))) if k != 1)
    arrays, targets = sources(), [np.empty(count * size, np.float32) for _ in range(count)]
    end([e.all_gather(x, target) for e, x, target in zip(neighbours, arrays, targets)])
    assert all(np.array_equal(target, whole) for target in targets)
    for root in range(count):
        arrays = sources()
        requests = [e.broadcast(x, root) for e, x in zip(neighbours, arrays)]
        end(requests)
        assert all(np.array_equal(x, given(count, size)[root]) for x in arrays)


@pytest.mark.parametrize("by", [2, 3])
def test_sums_are_divided_where_they_are_made(engines: list[SocketEngine], by: int) -> None:
    count = len(engines)
    for size in SIZES:
        expected = sum(given(count, size)) / np.float32(by)
        arrays = given(count, size)
        end([e.all_reduce(x, "SUM", by) for e, x in zip(engines, arrays)])
        assert all(np.allclose(x, expected, rtol=1e-6) and np.array_equal(x, arrays[0]) for x in arrays)
        arrays = given(count, size)
        end([e.reduce(x, "SUM", 1, by) for e, x in zip(engines, arrays)])
        assert np.allclose(arrays[1], expected, rtol=1e-6) and np.array_equal(arrays[0], given(count, size)[0])
        if size % count == 0:
            parts = [np.empty(size // count, np.float32) for _ in engines]
            end([e.reduce_scatter(x, part, "SUM", by) for e, x, part in zip(engines, given(count, size), parts)])
            assert np.allclose(np.concatenate(parts), expected, rtol=1e-6)


def test_misfits_and_losses_in_common_memory(neighbours: list[SocketEngine]) -> None:
    requests = [e.all_reduce(np.ones(9000 + e.rank), "SUM") for e in neighbours]
    later = [e.all_reduce(np.ones(9000), "SUM") for e in neighbours]
    for request in requests:
        with pytest.raises(MisfitError, match=r"rank \d has given \d+ bytes where \d+ are expected"):
            end([request])
    end(later)  # what failed before holds nothing up
    waiting = [e.all_reduce(np.ones(9000), "SUM") for e in neighbours[:-1]]
    for peer in neighbours[-1].mesh.peers.values():
        peer.socket.close()  # as the system does for a process that is killed
    for request in waiting:
        with pytest.raises(DistNetworkError, match="was killed, or its connection is broken"):
            end([request])


def share_nothing_by_name(rank: int, method: str) -> None:
    dist.init_process_group("gloo", method, rank=rank, world_size=2)
    engine = dist.distributed_c10d._get_default_group()._engine
    assert engine.mesh.blocks is not None and len(engine.mesh.blocks.room.rows) == 2
    for size in (10**5, 10**6 + 1):
        x = torch.full((size,), rank + 1.0)
        dist.all_reduce(x)
        assert bool((x == 3).all())
    with open("/proc/self/maps") as file:
        (line,) = [line for line in file if "memfd:dynagraph" in line]
    assert "(deleted)" in line
    pair = dist.new_group([0, 1])
    assert pair._engine.common.block is not None and pair._engine.common.block != engine.common.block
    halves = torch.full((10**5,), rank + 1.0, dtype=torch.bfloat16)
    dist.all_reduce(halves, group=pair)
    assert bool((halves == 3).all())
    dist.destroy_process_group()


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="common memory is found by /proc")
def test_ranks_of_one_machine_have_common_memory() -> None:
    mp.spawn(share_nothing_by_name, (f"tcp://127.0.0.1:{free_port()}",), 2)


def sum_at_odd_times(rank: int, method: str, count: int, rounds: int) -> None:
    """Arrays of all kinds, several at once, by ranks that are out of step, with the mesh's own thread or without it."""
    dist.init_process_group("gloo", method, rank=rank, world_size=count, timeout=datetime.timedelta(seconds=60))
    engine = dist.distributed_c10d._get_default_group()._engine

    def tell(text: str) -> list[str]:
        every: list[Any] = [None] * count
        dist.all_gather_object(every, text)
        return every

    room = engine.room(tell, 1 << 20)
    own = torch.from_numpy(room.own[: 1 << 18].view(np.float32)) if room is not None else torch.zeros(1 << 16)
    pauses, sizes = random.Random(rank), random.Random(0)
    for k in range(rounds):
        lengths = [sizes.choice((3, 5000, 70_001, 1_200_000)) for _ in range(3)]
        tensors = [torch.full((length,), rank + k + 1.0) for length in lengths]
        own.fill_(rank + k + 1.0)
        works = []
        for tensor in (tensors[0], own, *tensors[1:]):
            time.sleep(pauses.choice((0, 0, 0.001, 0.01)))
            works.append(dist.all_reduce(tensor, async_op=True))
        pauses.shuffle(works)
        for work in works:
            time.sleep(pauses.choice((0, 0, 0.003)))
            work.wait()
        total = count * (count - 1) / 2 + count * (k + 1)
        assert all(bool((tensor == total).all()) for tensor in (own, *tensors)), k
    dist.destroy_process_group()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes are stopped by a signal")
@pytest.mark.parametrize(("count", "rounds"), [(2, 25), (5, 8)])
def test_sums_of_ranks_that_are_stopped_now_and_then(count: int, rounds: int) -> None:
    ranks = mp.spawn(sum_at_odd_times, (f"tcp://127.0.0.1:{free_port()}", count, rounds), count, join=False)
    choices, until = random.Random(3), time.monotonic() + 100
    while not ranks.join(timeout=choices.choice((0.005, 0.02, 0.05))):
        assert time.monotonic() < until
        process = choices.choice([process for process in ranks.processes if process.is_alive()] or ranks.processes)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
            time.sleep(choices.choice((0.001, 0.02)))


def given(count: int, size: int) -> list[np.ndarray]:
    return [(np.arange(size) % 11 + rank).astype(np.float32) for rank in range(count)]


def test_sums(engines: list[SocketEngine]) -> None:
    count = len(engines)
    for size in SIZES:
        total = sum(given(count, size))
        arrays = given(count, size)
        end([e.all_reduce(x, "SUM") for e, x in zip(engines, arrays)])
        assert all(np.array_equal(x, total) for x in arrays)
        arrays = given(count, size)
        end([e.reduce(x, "SUM", 1) for e, x in zip(engines, arrays)])
        assert np.array_equal(arrays[1], total) and np.array_equal(arrays[0], given(count, size)[0])
        wide, parts = given(count, size * count), np.empty((count, size), np.float32)
        end([e.reduce_scatter(x, part, "MAX") for e, x, part in zip(engines, wide, parts)])
        assert np.array_equal(parts.reshape(-1), wide[-1])


def test_movements(engines: list[SocketEngine]) -> None:
    count = len(engines)
    for size in SIZES:
        arrays = given(count, size)
        whole = np.concatenate(arrays)
        each = [np.empty(size * count, np.float32) for _ in engines]
        end([e.all_gather(x, target) for e, x, target in zip(engines, arrays, each)])
        assert all(np.array_equal(x, whole) for x in each)
        root = np.empty_like(whole)
        end([e.gather(x, root if e.rank == 1 else None, 1) for e, x in zip(engines, arrays)])
        parts = [np.empty(size, np.float32) for _ in engines]
        end([e.scatter(root if e.rank == 1 else None, part, 1) for e, part in zip(engines, parts)])
        assert np.array_equal(root, whole) and all(map(np.array_equal, parts, arrays))
        end([e.broadcast(x, 1) for e, x in zip(engines, parts)])
        assert all(np.array_equal(x, arrays[1]) for x in parts)
    end([e.barrier() for e in engines])


def test_a_message_that_ends_where_a_turn_of_reading_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing follows it that would wake the reader up."""
    content = np.arange(1000, dtype=np.uint8)
    monkeypatch.setattr(mesh, "_AT_ONCE", mesh._HEADER.size + content.nbytes)
    engines = engines_of(2)
    target = np.empty_like(content)
    end([engines[1].receive(target, 0, 0), engines[0].send(content, 1, 0)])
    assert np.array_equal(target, content)
    for engine in engines:
        engine.close()


def test_arrays_that_do_not_fit(engines: list[SocketEngine]) -> None:
    with pytest.raises(MisfitError, match=r"rank \d has sent \d+ bytes where \d+ are expected"):
        end([e.all_reduce(np.ones(e.rank + 1), "SUM") for e in engines])


def test_ranks_that_leave_or_are_lost() -> None:
    """Operations that a rank has called before it left can end; others fail, and name it."""
    engines = engines_of(3)
    arrays = [np.ones(3) for _ in engines]
    requests = [e.all_reduce(x, "SUM") for e, x in zip(engines, arrays)]
    end([requests[2]])
    engines[2].close()
    end(requests)
    late = engines[0].all_reduce(np.ones(3), "SUM")
    with pytest.raises(DistNetworkError, match="rank 2 has left: its process has ended, or has called destroy_process_group"):
        end([late])
    pair = [e.part([0, 1]) for e in engines[:2]]
    end([e.barrier() for e in pair])
    waiting = [pair[0].all_reduce(np.ones(10**6), "SUM"), engines[0].receive(np.ones(3), 1, 0)]
    for peer in engines[1].mesh.peers.values():
        peer.socket.close()  # as the system does for a process that is killed
    for request in waiting:
        with pytest.raises(DistNetworkError, match="rank 1 was killed, or its connection is broken"):
            end([request])
    with pytest.raises(DistNetworkError, match="rank 1 was killed"):
        end([engines[0].send(np.ones(3), 1, 0)])
    engines[0].close()


def test_what_is_under_way_goes_on_by_itself() -> None:
    engines = engines_of(2)
    arrays = [np.ones(10**6) for _ in engines]
    requests = [e.all_reduce(x, "SUM") for e, x in zip(engines, arrays)]
    until = time.monotonic() + 60
    while not all(request.handle.done for request in requests):  # nobody tests
        time.sleep(0.001)
        assert time.monotonic() < until
    assert all((x == 2).all() for x in arrays)
    for engine in engines:
        engine.close()


def test_whoever_reads_a_message_wakes_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mesh's own thread, and several that wait, are in each other's way."""
    monkeypatch.setattr(mesh, "_PAUSE", 30.0)  # nothing is found by looking again
    engines = engines_of(2)
    slowest = [0.0, 0.0]

    def wait(rank: int, request: Any) -> None:
        begin = time.monotonic()
        engines[rank].mesh.wait_for(request.handle, 60)
        slowest[rank] = max(slowest[rank], time.monotonic() - begin)

    for k in range(40):
        arrays = [np.full(5000, rank + 1.0) for rank in range(2)]
        first = [engines[0].all_reduce(x, "SUM") for x in (arrays[0], arrays[0].copy())]
        time.sleep(0.002 * (k % 3))  # the thread of the mesh waits by now, or not yet
        threads = [threading.Thread(target=wait, args=(0, request)) for request in first[: 1 + k % 2]]
        for thread in threads:
            thread.start()
        time.sleep(0.002 * (k // 3 % 3))
        second = [engines[1].all_reduce(x, "SUM") for x in (arrays[1], arrays[1].copy())]
        for request in second:
            wait(1, request)
        for thread in threads:
            thread.join()
        wait(0, first[1])
        assert (arrays[0] == 3).all() and (arrays[1] == 3).all()
        assert max(slowest) < 10, k
    for engine in engines:
        engine.close()


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def rank_of_two(rank: int, method: str, how: str) -> None:
    for _ in range(2):  # the second world meets where the first did
        dist.init_process_group("gloo", method, rank=rank, world_size=2)
        x = torch.full((3,), rank + 1.0)
        dist.all_reduce(x)
        assert x.tolist() == [3, 3, 3]
        if not _:
            dist.destroy_process_group()
    if rank and how == "raises":
        raise KeyError("lost")
    if rank:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("how", "error", "text"), [
    ("raises", mp.ProcessRaisedException, "KeyError: 'lost'"),  # and not what rank 0 says of it
    ("is killed", mp.ProcessExitedException, "process 1 terminated with signal SIGKILL"),
])  # fmt: skip
def test_processes_that_were_spawned(how: str, error: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", free_port())
    method = "env://" if how == "raises" else f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(error, match=text):
        mp.spawn(rank_of_two, (method, how), 2)


def test_ways_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert rendezvous.place("tcp://localhost:1?rank=1&world_size=3", -1, -1) == (1, 3)
    for method, about, error, text in (
        (None, {"world_size": 2}, ValueError, "env:// rendezvous: environment variable RANK expected, but not set"),
        (None, {"world_size": 2, "rank": 0}, ValueError, "environment variable MASTER_ADDR expected, but not set"),
        ("tcp://localhost:1", {"world_size": 2}, ValueError, "tcp:// rendezvous: rank parameter missing"),
        ("tcp://localhost", {"world_size": 2, "rank": 0}, ValueError, "no host and port in"),
        ("smoke://hill", {"world_size": 2, "rank": 0}, RuntimeError, "No rendezvous handler for smoke://"),
        ("tcp://localhost:1", {"world_size": 2, "rank": 2}, ValueError, "rank is 2, and should be from 0 to 1"),
    ):
        with pytest.raises(error, match=text):
            dist.init_process_group("gloo", method, **about)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="world_size must be positive if using store"):
        dist.init_process_group("gloo", store=dist.HashStore())
    with pytest.raises(dist.DistStoreError, match="ranks \\[1\\] did not come to init_process_group within its timeout"):
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=2, timeout=datetime.timedelta(seconds=0.1))
    assert not dist.is_initialized()
