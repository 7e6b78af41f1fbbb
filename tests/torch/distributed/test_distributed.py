"""torch.distributed on MPI and over sockets: gloo, as recorded; what several ranks check together; one process; ranks that fail."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dynagraph as dg
from dynagraph import torch
from dynagraph.torch import distributed as dist
from dynagraph.torch import futures
from dynagraph.torch.distributed import effects
from dynagraph.torch.distributed.fsdp import fully_shard
from dynagraph.torch.utils.data import DistributedSampler
from tests.torch.distributed.ranks import by_hand, by_mpiexec, cases_of, differences, environment, needs_mpi, outputs
from tests.torch.distributed.record import RANKS, recorded

ENGINES = [pytest.param("mpi", marks=needs_mpi), "sockets"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", RANKS)
def test_collectives_give_what_was_recorded_of_gloo(ranks: int, engine: str, tmp_path: Path) -> None:
    assert not differences(cases_of(engine, ranks, tmp_path), recorded(ranks))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("which", ["all", "compiled"])
def test_programs_of_several_ranks(which: str, ranks: int, engine: str) -> None:
    arguments = ["-m", "tests.torch.distributed.programs", which]
    if engine == "mpi":
        ended = by_mpiexec(ranks, arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    else:
        found = outputs(by_hand(ranks, arguments))
        assert [code for code, _, _ in found] == [0] * ranks, found


FAILING = """
import sys
import torch
from torch import distributed as dist

dist.init_process_group()
if dist.get_rank() == 1:
    FAILURE
dist.barrier()
"""


@needs_mpi
@pytest.mark.parametrize(("failure", "status", "text"), [
    ("raise KeyError('lost')", 1, "[rank1]: KeyError: 'lost'"),
    ("sys.exit(3)", 3, ""),
])  # fmt: skip
def test_a_rank_that_fails_ends_all(failure: str, status: int, text: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FAILING.replace("FAILURE", failure))
    ended = by_mpiexec(2, ["-m", "dynagraph.torch", str(script)])
    assert ended.returncode == status and text in ended.stderr and "[rank0]" not in ended.stderr
    if text:
        assert '[rank1]:   File "' + str(script) in ended.stderr


KILLED = """
import os, signal, threading
from dynagraph import torch
from dynagraph.torch import distributed as dist

dist.init_process_group()
x = torch.ones(3_000_000)
dist.all_reduce(x)
with open("/proc/self/maps") as file:
    print(*{line.split()[-2] for line in file if "memfd:dynagraph" in line and "kernel" not in line}, flush=True)
if dist.get_rank() == 1:
    threading.Timer(SECONDS, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    dist.all_reduce(x)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="common memory is found by /proc")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
def test_a_rank_that_is_killed_in_a_sum_leaves_no_memory(engine: str, seconds: float, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(KILLED.replace("SECONDS", str(seconds)))
    if engine == "mpi":
        ended = by_mpiexec(2, [str(script)])
        assert ended.returncode
        out = ended.stdout
    else:
        (code, out, errors), (killed, _, _) = outputs(by_hand(2, [str(script)]))
        assert code == 1 and killed == -signal.SIGKILL and "DistBackendError" in errors and "rank 1 was killed" in errors
    assert "memfd:dynagraph" in out  # a file that has no name: it is gone with the processes
    assert not [name for name in os.listdir("/dev/shm") if "dynagraph" in name]


def test_processes_that_mpiexec_has_not_started() -> None:
    program = (
        "import torch.distributed as d\n"
        "for about in ({}, {'rank': 0, 'world_size': 1}):\n"
        "    d.init_process_group('gloo', **about); assert d.get_world_size() == 1; d.destroy_process_group()\n"
        "d.init_process_group('mpi', rank=1, world_size=4)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "dynagraph.torch", "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "ValueError: world_size is 4, but this process was not started by mpiexec: start the" in ended.stderr
    assert "`mpiexec -n 4 python train.py`" in ended.stderr


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A world of this process."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    dist.init_process_group("gloo")
    yield
    dist.destroy_process_group()
    assert not dist.is_initialized() and dist.group.WORLD is None


def test_a_world_of_one(alone: None) -> None:
    x, y = torch.arange(4.0), torch.zeros(1, 4)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    dist.all_gather_into_tensor(y, x)
    part = torch.zeros(4)
    assert dist.reduce_scatter_tensor(part, x, async_op=True).wait()
    every = [None]
    dist.all_gather_object(every, {"a": 1})
    assert x.tolist() == y[0].tolist() == part.tolist() == [0, 1, 2, 3] and every == [{"a": 1}]
    assert dist.get_backend() == "gloo" and dist.get_backend_config() == "cpu:gloo,cuda:gloo"
    assert list(DistributedSampler(range(3), shuffle=False)) == [0, 1, 2]
    mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
    assert repr(mesh) == "DeviceMesh((a=1, b=1), 'cpu', stride=(1, 1))" and mesh["b"].get_coordinate() == (0,)
    for backend, error, text in (
        ("foo", AssertionError, "Unknown backend type foo"), ("ucc", RuntimeError, "there is no backend ucc here"),
        ("cpu:nccl", ValueError, "'nccl' does not serve|nccl does not serve tensors on 'cpu'"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            dist.new_group(backend=backend)


class Stop(BaseException):
    """What a signal's handler raises."""


def stopped(*about: Any) -> None:
    raise Stop


def failed() -> None:
    raise RuntimeError("lost")


@pytest.mark.parametrize("backend", ["c", "numpy", "reference"])
def test_a_collective_that_raises_is_not_called_again(alone: None, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, or by a signal's handler within it."""

    def step(x: Any) -> Any:
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    calls: list[Any] = []
    raising: Any = None
    plain = effects.OPERATIONS["all_reduce"]

    def counted(*args: Any) -> Any:
        calls.append(args)
        if raising is not None:
            raising()
        return plain(*args)

    monkeypatch.setitem(effects.OPERATIONS, "all_reduce", counted)
    before = signal.signal(signal.SIGALRM, stopped)
    try:
        compiled = dg.compile(step, mode="max", backend=backend)
        assert compiled(torch.ones(2)).tolist() == [3, 3]
        for how, error in ((failed, RuntimeError), (lambda: signal.raise_signal(signal.SIGALRM), Stop)):
            raising = how
            calls.clear()
            with pytest.raises(error):
                compiled(torch.ones(2))
            assert len(calls) == 1 and compiled.stats.refusals == 0
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_collective_in_a_try_block_runs_plainly(alone: None) -> None:
    """Whose error the code may handle; blocks of no_grad and the like handle none."""
    log = []

    def handled(x: Any) -> Any:
        try:
            dist.all_reduce(x)
        except RuntimeError:
            return x * 0
        return x + 1

    def ended(x: Any) -> Any:
        try:
            dist.all_reduce(x)
        finally:
            log.append("end")
        return x + 1

    def suppressed(x: Any) -> Any:
        with contextlib.suppress(RuntimeError), torch.no_grad():
            dist.all_reduce(x)
        return x + 1

    def without_gradients(x: Any) -> Any:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            dist.all_reduce(x)
        return x + 1

    for function, is_one in ((handled, False), (ended, False), (suppressed, False), (without_gradients, True)):
        compiled = dg.compile(function, mode="max")
        assert compiled(torch.ones(2)).tolist() == [2, 2]
        assert bool(compiled.stats.breaks) != is_one
    assert log == ["end"]


def test_state_that_hooks_of_ours_hold_is_guarded(alone: None) -> None:
    """A closure of a function of this package may hold what users change: here whole parameters, and whether they are old."""
    torch.manual_seed(0)
    layer = fully_shard(torch.nn.Linear(2, 2))
    layer.set_reshard_after_backward(False)
    (group,) = layer._groups()
    parts = [place.part.to_local() for place in group.places]

    def step(x: Any) -> Any:
        y = layer(x)
        y.sum().backward()
        return y.detach()

    compiled = dg.compile(step, mode="max", fullgraph=True)
    for k in range(9):
        if k in (3, 6, 7):
            with torch.no_grad():
                for part in parts:
                    part.add_(0.5)
        weight, bias = parts
        assert torch.equal(compiled(torch.ones(1, 2)), torch.ones(1, 2) @ weight.t() + bias), k
    assert compiled.stats.hits > 0 and group.is_whole


def test_backends_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=r"^Unknown backend type foo$"):
        dist.init_process_group("foo")
    with pytest.raises(AssertionError, match=r"^Process group cannot be None$"):
        dist.destroy_process_group()
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ValueError, match=r"^the environment variable WORLD_SIZE is 'two', and should be a number$"):
        dist.init_process_group("gloo")
    if not dist.is_nccl_available():
        with pytest.raises(RuntimeError, match="the backend 'nccl' needs a GPU, and CuPy with NCCL"):
            dist.init_process_group("nccl")
    assert repr(dist.ReduceOp.SUM) == "<RedOpType.SUM: 0>" and isinstance(dist.ReduceOp.AVG, dist.ReduceOp)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert dist.get_node_local_rank() == 3 and dist.get_default_backend_for_device("cuda:1") == "nccl"


@pytest.mark.parametrize("kind", ["hash", "file", "prefix", "tcp"])
def test_stores(kind: str, tmp_path: Path) -> None:
    short = datetime.timedelta(seconds=0.05)
    store: dist.Store = dist.HashStore()
    if kind == "file":
        store = dist.FileStore(str(tmp_path / "store"), 1)
    elif kind == "prefix":
        store = dist.PrefixStore("p", store)
    elif kind == "tcp":
        store = dist.TCPStore("127.0.0.1", 0, 1, True)
    store.set("a", "1")
    assert store.get("a") == b"1" and (store.add("n", 3), store.add("n", -1), store.get("n")) == (3, 2, b"2")
    assert store.check(["a", "n"]) and not store.check(["a", "b"])
    swapped = [store.compare_set(*given) for given in (("a", "2", "3"), ("a", "1", "3"), ("c", "", "x"), ("d", "e", "x"))]
    assert swapped == [b"1", b"3", b"x", b"e"]
    assert (store.delete_key("a"), store.delete_key("a")) == (True, False)
    store.append("bytes", "x")
    store.append("bytes", b"\xff")
    store.multi_set(["k", "l"], ["v", b"w"])
    assert store.get("bytes") == b"x\xff" and store.multi_get(["k", "l"]) == [b"v", b"w"]
    assert sorted(store.list_keys()) == ["bytes", "c", "k", "l", "n"]
    with pytest.raises(dist.DistStoreError, match="wait timeout after 50ms, keys: z"):
        store.wait(["z"], short)
    other = dist.TCPStore("127.0.0.1", store.port) if isinstance(store, dist.TCPStore) else store
    setting = threading.Thread(target=lambda: other.set("z", "late"))
    setting.start()
    assert store.get("z") == b"late"
    setting.join()


def test_futures() -> None:
    first: futures.Future[int] = futures.Future()
    second = first.then(lambda f: f.wait() + 1)
    failed = first.then(lambda f: 1 // 0)
    seen: list[int] = []
    first.add_done_callback(lambda f: seen.append(f.value()))
    assert not second.done()
    first.set_result(1)
    assert second.wait() == 2 and seen == [1] and futures.wait_all([first, second]) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        failed.wait()
    with pytest.raises(RuntimeError, match="only be marked completed once"):
        first.set_result(2)
