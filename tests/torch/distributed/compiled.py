"""Operations of `torch.distributed` within compiled functions: each gives what it gives plainly, as one program."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

import dynagraph as dg
from dynagraph import torch
from dynagraph.torch import distributed as dist
from dynagraph.torch import nn
from dynagraph.torch.distributed import _functional_collectives as functional
from dynagraph.torch.distributed.nn import functional as F


def same(plain: Callable[..., Any], *given: Any, calls: int = 3, whole: bool = True, **options: Any) -> Any:
    """A function compiled gives what it gives plainly, call for call; `whole`: as one program."""
    compiled = dg.compile(plain, **{"mode": "max", "fullgraph": whole, **options})
    for k in range(calls):
        mine, theirs = ([torch.clone(x.detach() + k).requires_grad_(x.requires_grad) for x in given] for _ in range(2))
        for a, b in zip((*plain(*mine), *mine), (*compiled(*theirs), *theirs)):
            assert a.dtype == b.dtype and torch.equal(a, b), (plain.__name__, a, b)
        for a, b in zip(mine, theirs):
            assert (a.grad is None) == (b.grad is None) and (a.grad is None or torch.equal(a.grad, b.grad)), (a.grad, b.grad)
    if whole:
        assert compiled.stats.compiles + compiled.stats.restored == 1, (compiled.stats, compiled.stats.breaks)
    return compiled


def effects_of(compiled: Any) -> int:
    return str(compiled.last_graph).count("= effect_call(")


def lists_of_tensors(r: int, w: int) -> None:
    def every(x: Any) -> Any:
        root = w - 1
        gathered = [torch.zeros(3, 4) for _ in range(w)] if r == root else None
        dist.gather(x * 2, gathered, dst=root)
        part = torch.zeros(3, 4)
        dist.scatter(part, [x + k for k in range(w)] if r == 1 else None, src=1)
        received = [torch.zeros(3, 4) for _ in range(w)]
        dist.all_to_all(received, [part * k for k in range(w)])
        uneven = [torch.zeros(r + 1, 2) for _ in range(w)]  # of other sizes for each rank
        dist.all_to_all(uneven, [x.reshape(-1)[: 2 * (k + 1)].reshape(k + 1, 2) for k in range(w)])
        halves = [torch.zeros(3, 4, dtype=torch.float16) for _ in range(w)] if r == 0 else []
        works = [
            dist.gather(part.to(torch.float16), halves, async_op=True),
            dist.scatter(x, [part + k for k in range(w)] if r == 0 else None, async_op=True),
        ]
        between = part.sum()
        for work in works:
            work.wait()
        dist.barrier()
        return part, between, *received, *uneven, *(gathered or ()), *halves

    x = torch.arange(12.0).reshape(3, 4) * (r + 1)
    for backend in ("c", "numpy"):
        assert effects_of(same(every, x, backend=backend)) == 9

    def of_any_size(x: Any) -> Any:
        received = [torch.zeros_like(x) for _ in range(w)]
        dist.all_to_all(received, [x + k for k in range(w)])
        gathered = [torch.zeros_like(x) for _ in range(w)] if r == 0 else None
        dist.gather(x, gathered)
        return torch.cat(received), *(gathered or ())

    compiled = dg.compile(of_any_size, mode="max", fullgraph=True, dynamic=True)
    for n in (2, 3, 5):
        for a, b in zip(of_any_size(torch.arange(n * 1.0)), compiled(torch.arange(n * 1.0))):
            assert torch.equal(a, b)
    assert compiled.stats.compiles + compiled.stats.restored == 1, compiled.stats


def messages(r: int, w: int) -> None:
    after, before = (r + 1) % w, (r - 1) % w

    def ring(x: Any) -> Any:
        y, z, v = torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16), torch.zeros(2, 2)
        works = [dist.isend(x * 2, after), dist.irecv(y, before)]
        between = x.sum()
        for work in works:
            work.wait()
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, y.to(torch.bfloat16), after, tag=4), dist.P2POp(dist.irecv, z, before, tag=4)]
        )
        for work in works:
            work.wait()
        if r % 2:  # of two ranks one sends first
            dist.send(torch.ones(2, 2) * x[0], after, tag=1)
            source = dist.recv(v[:, :], before, tag=1)
        else:
            source = dist.recv(v, before, tag=1)
            dist.send(torch.ones(2, 2) * x[0], after, tag=1)
        return y, z, v, between, torch.tensor(source + works[-1].source_rank())

    x = torch.arange(3.0) + r
    for backend in ("c", "numpy"):
        assert effects_of(same(ring, x, backend=backend)) == 11

    def from_anybody(x: Any) -> Any:
        y = torch.zeros(3)
        if r == 0:
            source = dist.recv(y)
            return y + 1, torch.tensor(source)
        if r == 1:
            dist.send(x + 1, 0)
        return (y,)

    compiled = same(from_anybody, x, whole=False)
    reasons = " ".join(compiled.stats.breaks)
    assert ("name the source rank" in reasons) == (r == 0), reasons


def gradients_pass_through_operations(r: int, w: int) -> None:
    """Forward and backward are one program, with the collectives of both."""

    def step(x: Any, y: Any) -> Any:
        z = F.all_reduce(x * y) + F.broadcast(x * x, 1)
        parts = F.all_gather(z * 3)
        z = z + F.reduce_scatter(torch.zeros(3, 2), [part * k for k, part in enumerate(parts)])
        z = z * F.scatter([z * (k + 1) for k in range(w)], 0)
        gathered = torch.stack(list(F.gather(z, 0)))
        swapped = torch.stack(list(F.all_to_all([torch.zeros(3, 2) for _ in range(w)], [z - k for k in range(w)])))
        single = F.all_to_all_single(torch.zeros(3 * w, 2), swapped.reshape(3 * w, 2))
        loss = (single * 1e-2).sum() + (gathered * 1e-2).sum() + F.reduce(z, 0).sum() * 1e-3
        loss.backward()
        return loss.detach(), x.grad, y.grad

    x, y = ((torch.arange(6.0).reshape(3, 2) % k + r + 1).requires_grad_() for k in (2, 3))
    compiled = dg.compile(step, mode="max", fullgraph=True)
    for _ in range(3):
        x.grad = y.grad = None
        expected = [torch.clone(t) for t in step(x, y)]
        x.grad = y.grad = None
        for a, b in zip(expected, compiled(x, y)):
            assert torch.allclose(a, b, rtol=1e-5), (a, b)
    assert compiled.stats.compiles + compiled.stats.restored == 1, (compiled.stats, compiled.stats.breaks)
    assert effects_of(compiled) >= 16


def mistakes_in_compiled_functions(r: int, w: int) -> None:
    """The errors are those of plain calls, and nothing has been sent."""
    x = torch.ones(2)
    for call in (
        lambda x: dist.all_to_all([x + 1], [x]),
        lambda x: dist.all_to_all([x + 1] * w, [x.to(torch.int32)] * w),
        lambda x: dist.gather(x * 2, [x] * w if r else None),
        lambda x: dist.gather(x * 2, [torch.zeros(3)] * w if r == 0 else None) if r == 0 else dist.gather(x * 2, [x]),
        lambda x: dist.scatter(x * 2, [x] * w if r else None),
        lambda x: dist.scatter(x * 2, [x] * (w + 1) if r == 0 else [x]),
        lambda x: dist.send(x * 2, r),
        lambda x: dist.recv(x * 2, w + 3),
        lambda x: dist.isend(x * 2, "1"),
    ):
        with pytest.raises(Exception) as expected:  # which one the plain call says
            call(x)
        with pytest.raises(type(expected.value)) as found:
            dg.compile(call, mode="max")(x)
        assert str(found.value) == str(expected.value)
    dist.barrier()


def lengths_that_differ(r: int, w: int) -> None:
    @dg.compile(mode="max", fullgraph=True)
    def step(x: Any) -> Any:
        y = torch.zeros(4)
        if r == 0:
            dist.send(x * 2, 1)
        if r == 1:
            dist.recv(y, 0)
        return x + y[0]

    if r == 1:
        with pytest.raises(dist.DistBackendError, match="a message of 8 bytes came from rank 0 for a tensor of 16 bytes"):
            step(torch.ones(2))
    else:
        assert step(torch.ones(2)).tolist() == [1, 1]
    dist.barrier()


def what_programs_have_no_op_for(r: int, w: int) -> None:
    def objects(x: Any) -> Any:
        y = x * 2
        dist.all_reduce(y)
        every = [None] * w
        dist.all_gather_object(every, r)
        dist.barrier()
        dist.monitored_barrier()
        dist.barrier(timeout=datetime.timedelta(seconds=50))
        return (y + sum(every),)

    compiled = same(objects, torch.ones(2), whole=False)
    reasons = " ".join(compiled.stats.breaks)
    assert "monitored_barrier sees which ranks have come" in reasons and "a timeout of its own" in reasons, reasons
    assert "all_gather_object: _pickle.dumps" in reasons, reasons


def batch_norms_over_ranks(r: int, w: int) -> None:
    """A training step of a model with SyncBatchNorm is one program."""

    def made() -> tuple[Any, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: Any, t: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), t)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, step

    (plain, step), (model, compiled_step) = made(), made()
    compiled = dg.compile(compiled_step, mode="max", fullgraph=True)
    torch.manual_seed(r)
    for _ in range(4):
        x, t = torch.randn(3 + r, 2, 4, 4), torch.randint(0, 3, (3 + r,))
        assert abs(step(x, t) - compiled(x, t)) < 1e-5
    for (name, a), b in zip(plain.state_dict().items(), model.state_dict().values()):
        assert torch.allclose(a, b, atol=1e-5), (name, a, b)
    assert compiled.stats.compiles + compiled.stats.restored == 1, (compiled.stats, compiled.stats.breaks)
    assert effects_of(compiled) == 2
    halves = dg.compile(model, mode="max", fullgraph=True)  # backward is called outside
    for _ in range(3):
        x = torch.randn(3 + r, 2, 4, 4)
        grads = []
        for forward in (model, halves):
            model.zero_grad()
            forward(x).square().mean().backward()
            grads.append([torch.clone(p.grad) for p in model.parameters()])
        for a, b in zip(*grads):
            assert torch.allclose(a, b, atol=1e-5), (a, b)
    assert halves.stats.compiles + halves.stats.restored == 1, (halves.stats, halves.stats.breaks)


def functional_collectives(r: int, w: int) -> None:
    def step(x: Any) -> Any:
        y = functional.all_gather_tensor(functional.all_reduce(x * x, "sum", dist.group.WORLD), 1, dist.group.WORLD)
        z = functional.reduce_scatter_tensor(y * (r + 1), "sum", 1, mesh)
        v = functional.wait_tensor(functional.permute_tensor(functional.broadcast(z, 1, [*range(w)]), [*range(1, w), 0], mesh))
        v = v.wait() if isinstance(v, functional.AsyncCollectiveTensor) else v
        (v * v).sum().backward()
        return v.detach(), x.grad

    mesh = dist.init_device_mesh("cpu", (w,))
    compiled = same(step, (torch.arange(6.0).reshape(2, 3) + r).requires_grad_())
    assert effects_of(compiled) == 10
    for error, text, call in (
        (RuntimeError, "Unrecognized reduce_op: foo", lambda: functional.all_reduce(torch.ones(2), "foo", mesh)),
        (ValueError, "Unsupported group type: <class 'NoneType'>", lambda: functional.all_reduce(torch.ones(2), "sum", None)),
        (ValueError, "there is no group of the ranks", lambda: functional.all_reduce(torch.ones(2), "sum", [w])),
        (AssertionError, "must be a multiple of", lambda: functional.reduce_scatter_tensor(torch.ones(w + 1), "sum", 0, mesh)),
        (AssertionError, "specified together", lambda: functional.all_to_all_single(torch.ones(w), [1] * w, None, mesh)),
        (ValueError, "each rank of the group once", lambda: functional.permute_tensor(torch.ones(w), [0] * w, mesh)),
    ):
        with pytest.raises(error, match=text):
            call()
    y = functional.all_reduce(torch.ones(2, requires_grad=True), "avg", mesh)
    with pytest.raises(RuntimeError, match="all_reduce backward only supports 'sum' reduction, got 'avg'"):
        y.sum().backward()


PROGRAMS = (
    lists_of_tensors, messages, gradients_pass_through_operations, mistakes_in_compiled_functions, lengths_that_differ,
    what_programs_have_no_op_for, batch_norms_over_ranks, functional_collectives,
)  # fmt: skip
