"""Checks that several ranks make together: ``mpiexec -n 2 python -m tests.torch.distributed.programs [compiled]``.

Without mpiexec they are connected by sockets: MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE in the environment say how.
"""

from __future__ import annotations

import datetime
import os
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph import torch
from dynagraph.torch import distributed as dist
from dynagraph.torch import nn
from tests.torch.distributed import compiled as in_compiled_functions
from tests.torch.distributed.compiled import same


def mistakes(r: int, w: int) -> None:
    x = torch.ones(2)
    for error, text, call in (
        (TypeError, "Expected parameter `tensor` of type torch.Tensor but got <class 'list'>", lambda: dist.all_reduce([1.0])),
        (TypeError, "op must be a ReduceOp, such as ReduceOp.SUM, not 'sum'", lambda: dist.all_reduce(x, "sum")),
        (RuntimeError, "Cannot use ReduceOp.BOR with non-integral dtype", lambda: dist.all_reduce(x, dist.ReduceOp.BOR)),
        (RuntimeError, "result type Float can't be cast", lambda: dist.all_reduce(torch.ones(2).long(), dist.ReduceOp.AVG)),
        (ValueError, "MAX on complex tensors", lambda: dist.all_reduce(x.to(torch.complex64), dist.ReduceOp.MAX)),
        (RuntimeError, r"invalid rank 7: the world has \d ranks", lambda: dist.broadcast(x, 7)),
        (ValueError, "Must specify global_rank or group_rank", lambda: dist.broadcast(x)),
        (ValueError, "Can't specify both group_rank and global_rank", lambda: dist.broadcast(x, 0, group_src=0)),
        (RuntimeError, r"expected length \d, got 1", lambda: dist.all_gather([x], x)),
        (RuntimeError, r"index 0 \(expected \(2,\), got \(3,\)\)", lambda: dist.all_gather([torch.ones(3)] * w, x)),
        (ValueError, "different dtypes", lambda: dist.all_gather([x.long()] * w, x)),
        (ValueError, r"\[5\] is not \d times \[2\]", lambda: dist.all_gather_into_tensor(torch.ones(5), x)),
        (RuntimeError, "must be world size", lambda: dist.reduce_scatter(x, [x])),
        (RuntimeError, "does not divide equally", lambda: dist.all_to_all_single(torch.ones(w + 1), torch.ones(w + 1))),
        (RuntimeError, "Split sizes", lambda: dist.all_to_all_single(x, x, [1] * w, [2] * w)),
        (ValueError, "must be specified on destination rank", lambda: dist.gather(x, None, dst=r)),
        (ValueError, "must NOT be specified on non-destination ranks", lambda: dist.gather(x, [x] * w, dst=(r + 1) % w)),
        (ValueError, "must be specified on source rank", lambda: dist.scatter(x, None, src=r)),
        (ValueError, "should not be the same as the rank of the current process", lambda: dist.send(x, r)),
        (ValueError, "ranks are named twice", lambda: dist.new_group([0, 0])),
        (ValueError, "should be within the world_size", lambda: dist.new_group([0, w])),
        (ValueError, "twice", lambda: dist.init_process_group("gloo")),
        (RuntimeError, "refers to a single memory location", lambda: dist.all_reduce(torch.ones(1).expand(3))),
        (KeyError, "Invalid mesh_dim_name", lambda: dist.init_device_mesh("cpu", (w,), mesh_dim_names=("a",))["b"]),
        (RuntimeError, "should not be bigger than default world size", lambda: dist.init_device_mesh("cpu", (w, 2))),
    ):
        with pytest.raises(error, match=text):
            call()
    dist.barrier()


def shapes_that_differ(r: int, w: int) -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    text = r"Detected mismatch between collectives on ranks: rank 0 calls all_reduce: torch.float32 \[1\] SUM; rank 1 calls .*\[2\]"
    with pytest.raises(RuntimeError, match=text):
        dist.all_reduce(torch.ones(min(r, 1) + 1))
    dist.set_debug_level(dist.DebugLevel.OFF)
    if r == 0:
        dist.send(torch.ones(2), 1)
    if r == 1:
        with pytest.raises(dist.DistBackendError, match="a message of 8 bytes came from rank 0 for a tensor of 16 bytes"):
            dist.recv(torch.zeros(4), 0)


def ranks_that_do_not_come(r: int, w: int) -> None:
    late = dist.new_group(list(range(w)), timeout=datetime.timedelta(seconds=0.2))
    token = torch.zeros(1)
    if r == 0:
        with pytest.raises(RuntimeError, match=r"\[Rank 0\] all_reduce \(number 1 of group .*\) did not end within 0.2 s"):
            dist.all_reduce(torch.ones(2), group=late)
        with pytest.raises(RuntimeError, match=r"Ranks? 1.* failed to pass monitoredBarrier in 100 ms"):
            dist.monitored_barrier(late, timeout=datetime.timedelta(seconds=0.1), wait_all_ranks=True)
        for other in range(1, w):
            dist.send(token, other)
    else:
        dist.recv(token, 0)
        dist.all_reduce(torch.ones(2), group=late)
    dist.barrier()
    dist.monitored_barrier()


def outside_of_a_group(r: int, w: int) -> None:
    alone = dist.new_group([0])
    x = torch.ones(2)
    if r:
        assert alone == dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(alone) == -1
        with pytest.warns(UserWarning, match=f"Running all_reduce on global rank {r} which does not belong to the given group"):
            assert dist.all_reduce(x, group=alone) is None
    else:
        dist.all_reduce(x, group=alone)
        with pytest.raises(ValueError, match=r"Global rank 1 is not part of group .* whose ranks are \[0\]"):
            dist.broadcast(x, 1, group=alone)
    assert x.tolist() == [1, 1]


def views_with_gaps(r: int, w: int) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    dist.all_reduce(x[:, ::2])
    dist.broadcast(x[1::2, 1], w - 1)
    expected = torch.arange(24.0).reshape(4, 6)
    expected[:, ::2] *= w
    assert torch.equal(x, expected)


def saved_values_that_were_reduced(r: int, w: int) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    dist.all_reduce(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):  # PyTorch gives a wrong gradient
        y.sum().backward()


def compiled_collectives(r: int, w: int) -> None:
    def every(x: Any) -> Any:
        out = torch.zeros(w * 3, 4)
        dist.all_gather_into_tensor(out, x + 1)
        part, halves = torch.zeros(3, 4), x.to(torch.float16)
        dist.reduce_scatter_tensor(part, out * 2, op=dist.ReduceOp.AVG)
        parts = [torch.zeros(3, 4) for _ in range(w)]
        dist.all_gather(parts, part)
        dist.broadcast(part, src=1)
        dist.reduce(x, 0)
        dist.all_reduce(halves, op=dist.ReduceOp.MAX)
        swapped, sums = torch.zeros(w * 3, 4), torch.zeros(3, 4)
        dist.all_to_all_single(swapped, out)
        work = dist.reduce_scatter(sums, parts, async_op=True)
        doubled = out * 2
        work.wait()
        return out, part, swapped, halves, doubled, sums, *parts

    def twice(x: Any) -> Any:
        y, z = x + 1, x + 1
        dist.all_reduce(y)
        dist.all_reduce(z)
        dist.all_reduce(z * 5)  # nothing uses it, and the other ranks take part
        return y, z

    x = torch.arange(12.0).reshape(3, 4) * (r + 1)
    graph = str(same(every, x).last_graph)
    assert graph.count("= effect_call(") == 9
    assert str(same(twice, x).last_graph).count("= effect_call(") == 3
    same(twice, x, backend="numpy")


def _training(seed: int) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x: Any, t: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), t)
        loss.backward()
        works = [dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, async_op=True) for p in model.parameters()]
        for work in works:
            work.wait()
        optimizer.step()
        return loss.detach()

    return model, step


def compiled_training_step(r: int, w: int) -> None:
    (plain, step), (model, same) = _training(0), _training(0)
    compiled = dg.compile(same, mode="max", fullgraph=True)
    torch.manual_seed(r + 1)
    for _ in range(3):
        x, t = torch.randn(6, 8), torch.randint(0, 4, (6,))
        assert abs(step(x, t) - compiled(x, t)) < 1e-5
    for p, q in zip(plain.parameters(), model.parameters()):
        assert torch.allclose(p, q, atol=1e-6)
        every = [torch.zeros_like(q) for _ in range(w)]
        dist.all_gather(every, q.detach())
        assert all(torch.equal(each, every[0]) for each in every)
    assert compiled.stats.compiles + compiled.stats.restored == 1, (compiled.stats, compiled.stats.breaks)
    assert str(compiled.last_graph).count("= effect_call(") == 8


def checks_come_before_collectives(r: int, w: int) -> None:
    def f(x: Any, places: Any) -> Any:
        y = x * 2
        dist.all_reduce(y)
        return y + x[places]  # a place of an input: it is looked at before anything is sent

    for backend in ("c", "numpy"):
        compiled = dg.compile(f, mode="max", fullgraph=True, backend=backend)
        x = torch.arange(3.0)
        assert compiled(x, torch.tensor([2, 1, 0])).tolist() == [2, 2 * w + 1, 4 * w]
        with pytest.raises(IndexError):  # the plain call has sent it, in each rank
            compiled(x, torch.tensor([2, 1, 9]))
        assert compiled(x, torch.tensor([2, 1, 0])).tolist() == [2, 2 * w + 1, 4 * w]
    dist.barrier()


def works_of_compiled_code(r: int, w: int) -> None:
    @dg.compile(mode="max")
    def handed_on(x: Any) -> Any:
        y = x + 1
        return dist.all_reduce(y, async_op=True), y

    @dg.compile(mode="max")
    def forgotten(x: Any) -> Any:
        y = x + 1
        dist.all_reduce(y, async_op=True)
        return x * 2

    for k in range(3):
        work, y = handed_on(torch.ones(3) * k)
        future = work.get_future().then(lambda f: f.wait()[0])
        assert work.wait() and work.is_completed() and y.tolist() == [(k + 1.0) * w] * 3
        assert future.wait() is y and work.exception() is None
        assert forgotten(torch.ones(2)).tolist() == [2.0, 2.0]
    (reason,) = forgotten.stats.breaks
    assert "nothing waits for it" in reason


def exchanges_in_common_memory(r: int, w: int) -> None:
    """Large tensors of ranks on one machine: several at once, waited for in any order, on several groups."""
    engine: Any = dist.distributed_c10d._get_default_group()._engine
    assert engine.common is not None or not os.path.exists("/proc/self/fd")
    other = dist.new_group(list(range(w)))
    n, sums = 1_300_000, w * (w + 1) / 2
    for turn in range(3):
        a, b, c, d, halves = (torch.full((n,), r + 1.0) for _ in range(5))
        halves = halves.to(torch.bfloat16)
        rows, part = torch.zeros(w, 10_000), torch.zeros(9000)
        works: list[Any] = [
            dist.all_reduce(a, async_op=True),
            dist.all_reduce(b, op=dist.ReduceOp.AVG, group=other, async_op=True),
            dist.broadcast(c, 1, async_op=True),
            dist.reduce(d, 1, op=dist.ReduceOp.AVG, async_op=True),
            dist.all_gather_into_tensor(rows, torch.full((10_000,), r + 1.0), other, async_op=True),
            dist.all_reduce(halves, op=dist.ReduceOp.MAX, async_op=True),
            dist.reduce_scatter_tensor(part, torch.arange(w * 9000.0), op=dist.ReduceOp.AVG, async_op=True),
        ]
        for work in works[:: -1 if (r + turn) % 2 else 1]:
            work.wait()
        assert bool((a == sums).all()) and bool((b - sums / w).abs().max() < 1e-6) and bool((c == 2).all())
        assert bool((d - (sums / w if r == 1 else r + 1)).abs().max() < 1e-6)
        assert bool((halves == w).all()) and torch.equal(rows, torch.arange(1.0, w + 1).reshape(w, 1).expand(w, 10_000))
        assert torch.allclose(part, torch.arange(9000.0) + 9000 * r)
        work = dist.all_reduce(a, async_op=True)
        if r == 0:
            work.wait()
        late = dist.new_group(list(range(w)))  # waits for all ranks, one of which waits for what is under way
        work.wait()
        assert bool((a == w * sums).all())
        dist.destroy_process_group(late)
    if engine.common is not None:
        with pytest.raises(dist.DistBackendError, match=r"rank \d has given \d+ bytes where \d+ are expected"):
            dist.all_reduce(torch.ones(20_000 + 10_000 * min(r, 1)))
        dist.all_reduce(a.fill_(1.0))  # what failed before holds nothing up
        assert bool((a == w).all())
        if r == 1:
            other._engine.common.close()  # as where there are more groups than blocks: messages serve
        a, b, c = (torch.full((n,), r + 1.0) for _ in range(3))
        part, rows = torch.zeros(9000), torch.zeros(w, 9000)
        dist.all_reduce(a, op=dist.ReduceOp.AVG, group=other)
        dist.broadcast(b, 1, group=other)
        dist.reduce(c, 1, op=dist.ReduceOp.AVG, group=other)
        dist.reduce_scatter_tensor(part, torch.arange(w * 9000.0), op=dist.ReduceOp.AVG, group=other)
        dist.all_gather_into_tensor(rows, part, group=other)
        assert bool((a - sums / w).abs().max() < 1e-6) and bool((b == 2).all())
        assert bool((c - (sums / w if r == 1 else r + 1)).abs().max() < 1e-6)
        assert torch.allclose(rows.reshape(-1), torch.arange(w * 9000.0))
    dist.barrier()


PROGRAMS = (
    exchanges_in_common_memory,
    mistakes, shapes_that_differ, ranks_that_do_not_come, outside_of_a_group, views_with_gaps, saved_values_that_were_reduced,
    compiled_collectives, compiled_training_step, checks_come_before_collectives, works_of_compiled_code,
)  # fmt: skip


def main() -> None:
    warnings.simplefilter("error")
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    assert np.array_equal(dist.get_process_group_ranks(None), range(dist.get_world_size()))
    for program in in_compiled_functions.PROGRAMS if "compiled" in sys.argv[1:] else PROGRAMS:
        program(dist.get_rank(), dist.get_world_size())
        dist.barrier()
        if dist.get_rank() == 0:
            print(program.__name__, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
