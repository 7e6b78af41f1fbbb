"""DistributedDataParallel on several ranks against one process."""

from __future__ import annotations

from typing import Any

import dynagraph as dg
from dynagraph import torch
from dynagraph.torch import distributed as dist
from dynagraph.torch import nn
from dynagraph.torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from dynagraph.torch.distributed.algorithms.join import Join
from dynagraph.torch.distributed.optim import ZeroRedundancyOptimizer
from dynagraph.torch.nn.parallel import DistributedDataParallel
from dynagraph.torch.nn.parallel.distributed import _MixedPrecision
from tests.torch.data_parallel.common import adam, alone, data, distance, loss_of, mine, model, raises, train

OPTIONS: list[dict[str, Any]] = [
    {}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}, {"static_graph": True},
    {"bucket_cap_mb": 0.0005, "gradient_as_bucket_view": True}, {"static_graph": True, "bucket_cap_mb": 0.0005},
]  # fmt: skip


def equals_one_process() -> None:
    expected = alone()
    for options in OPTIONS if dist.get_world_size() == 2 else OPTIONS[-1:]:
        module = model()
        if dist.get_rank():
            nn.utils.vector_to_parameters(torch.zeros(6 * 16 + 16 + 17 * 8 + 27).double(), module.parameters())
        ddp = DistributedDataParallel(module, **options)
        train(ddp, adam(ddp.parameters()), mine(data()))
        assert distance(module, expected) < 1e-12, options
        assert len(ddp.reducer.buckets) == (3 if "bucket_cap_mb" in options else 1)
    assert ["module." + name for name in expected.state_dict()] == list(ddp.state_dict())


def buckets_follow_the_order_of_arrival() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.last(self.first(x).tanh())

    ddp = DistributedDataParallel(Backwards(), bucket_cap_mb=1e-5)
    before = [bucket.numbers for bucket in ddp.reducer.buckets]
    ddp(torch.ones(2, 4)).sum().backward()
    ddp(torch.ones(2, 4)).sum().backward()
    after = [bucket.numbers for bucket in ddp.reducer.buckets]
    assert before == [[3], [2], [1], [0]] and sorted(after[0] + after[1]) == [0, 1], (before, after)
    wide = nn.Sequential(nn.Linear(512, 1024), nn.Linear(1024, 512)).double()  # of 4 MiB, and biases
    found = [bucket.numbers for bucket in DistributedDataParallel(wide, bucket_cap_mb=4).reducer.buckets]
    assert found == [[3, 2], [1, 0]], found
    ddp = DistributedDataParallel(wide, bucket_cap_mb=4, gradient_as_bucket_view=True)
    ddp.reducer._build([2, 3, 0, 1])  # as they come: the last bias is no bucket of its own
    assert [bucket.numbers for bucket in ddp.reducer.buckets] == [[2], [3, 0, 1]]


def gradients_add_up_in_no_sync() -> None:
    for as_views in (False, True):
        module, expected = model(), model()
        ddp = DistributedDataParallel(module, gradient_as_bucket_view=as_views)
        for turn in range(3):
            for x, y in mine(data(3)):
                with ddp.no_sync():
                    loss_of(ddp, x, y).backward()
            x, y = mine(data(1))[0]
            loss_of(ddp, x, y).backward()
            for x, y in data(3) + data(1):
                loss_of(expected, x, y).backward()
            if turn == 1:
                ddp.zero_grad(set_to_none=False)
                expected.zero_grad()
            if turn == 2:
                assert ddp.reducer.rebuilt
            for a, b in zip(module.parameters(), expected.parameters()):
                assert b.grad is None or float((a.grad - b.grad).abs().max()) < 1e-12


class Branches(nn.Module):
    """Uses one of three layers besides the first, which `which` says."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 4)
        self.branches = nn.ModuleList([nn.Linear(4, 2) for _ in range(3)])

    def forward(self, x: Any, which: int | None = None) -> Any:
        hidden = self.first(x).tanh()
        return hidden if which is None else self.branches[which](hidden)


def unused_parameters_are_named() -> None:
    ddp = DistributedDataParallel(Branches())
    ddp(torch.ones(2, 4), 1).sum().backward()
    names = "branches.0.weight, branches.0.bias, branches.2.weight, branches.2.bias (indices 2 3 6 7)"
    raises(RuntimeError, names, lambda: ddp(torch.ones(2, 4), 1))
    raises(RuntimeError, "ready only once", lambda: _twice(DistributedDataParallel(Branches().first)))


def _twice(ddp: Any) -> None:
    loss = ddp(torch.ones(2, 4)).sum()
    ddp.reducer.buckets[0].pending += 1  # so that the first gradients do not end the reduction
    loss.backward(retain_graph=True)
    loss.backward()


def unused_parameters_are_found() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    module = Branches()
    ddp = DistributedDataParallel(module, find_unused_parameters=True, bucket_cap_mb=1e-5)
    x = torch.arange(8.0).reshape(2, 4) + rank
    for _ in range(2):  # branch 0 on rank 0, branch 1 on the others, branch 2 nowhere; the second time by accumulation
        ddp(x, min(rank, 1)).sum().backward()
    grads = [branch.weight.grad for branch in module.branches]
    assert grads[0] is not None and grads[1] is not None and grads[2] is None
    expected = Branches()
    for other in range(ranks):
        y = torch.arange(8.0).reshape(2, 4) + other
        (expected(y, min(other, 1)).sum() / ranks * 2).backward()
    for a, b in zip(module.parameters(), expected.parameters()):
        assert (a.grad is None) == (b.grad is None)
        assert a.grad is None or float((a.grad - b.grad).abs().max()) < 1e-5
    ddp.zero_grad()
    ddp(x, None if rank else 2).sum().backward()  # an output that only one rank computes by a branch
    assert module.branches[2].weight.grad is not None and module.branches[0].weight.grad is None
    static = DistributedDataParallel(module, static_graph=True)
    for _ in range(3):
        static.zero_grad()
        static(x, 1).sum().backward()
    assert module.branches[1].weight.grad is not None and module.branches[0].weight.grad is None


def inputs_may_be_uneven() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    batches = mine(data())
    counts = [len(batches) - 5 * (r % 3) for r in range(ranks)]  # rank r has so many
    whole = data()
    for by_all in (True, False):
        if by_all or ranks == 2:
            module, expected = model(), model()
            ddp = DistributedDataParallel(module, bucket_cap_mb=0.0005 if by_all else None)
            with ddp.join(divide_by_initial_world_size=by_all):
                train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), batches[: counts[rank]])
            optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
            for step, (x, y) in enumerate(whole):
                active = [r for r in range(ranks) if step < counts[r]]
                optimizer.zero_grad()
                for r in active:
                    (loss_of(expected, x[r::ranks], y[r::ranks]) / (ranks if by_all else len(active))).backward()
                optimizer.step()
            assert distance(module, expected) < 1e-12
            train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), batches[:3])  # divided by all ranks again
            train(expected, torch.optim.SGD(expected.parameters(), lr=0.1), whole[:3])
            assert distance(module, expected) < 1e-12
    raises(RuntimeError, "exhausted", lambda: _early(batches[: counts[rank]]))


def _early(batches: Any) -> None:
    ddp = DistributedDataParallel(model())
    with ddp.join(throw_on_early_termination=True):
        train(ddp, adam(ddp.parameters()), batches)


def uneven_inputs_with_divided_optimizer() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    module, expected = model(), model()
    ddp = DistributedDataParallel(module, gradient_as_bucket_view=True)
    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=1e-2)
    counts = [20 - 5 * (r % 3) for r in range(ranks)]
    with Join([ddp, zero]):
        train(ddp, zero, mine(data())[: counts[rank]])
    optimizer = adam(expected.parameters())
    for step, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        for r in range(ranks):
            if step < counts[r]:
                (loss_of(expected, x[r::ranks], y[r::ranks]) / ranks).backward()
        optimizer.step()
    assert distance(module, expected) < 1e-12


def buffers_are_those_of_the_first_rank() -> None:
    rank = dist.get_rank()
    ddp = DistributedDataParallel(model(norm=True))
    batches = mine(data(3))
    train(ddp, adam(ddp.parameters()), batches)
    ddp.eval()
    ddp(batches[0][0])  # brings the buffers of the last step
    means = [torch.zeros(16).double() for _ in range(dist.get_world_size())]
    dist.all_gather(means, ddp.module[1].running_mean)
    assert all(bool((mean == means[0]).all()) for mean in means)
    own = DistributedDataParallel(model(norm=True), broadcast_buffers=False)
    train(own, adam(own.parameters()), batches)
    dist.all_gather(means, own.module[1].running_mean)
    assert not (means[0] == means[1]).all(), rank


def batch_norm_over_ranks() -> None:
    expected = alone(norm=True)
    module = nn.SyncBatchNorm.convert_sync_batchnorm(model(norm=True))
    assert type(module[1]) is nn.SyncBatchNorm
    ddp = DistributedDataParallel(module)
    train(ddp, adam(ddp.parameters()), mine(data()))
    assert distance(module, expected) < 1e-8  # the bias before the norm has gradients of rounding errors alone
    # uneven and empty batches, four dimensions, the gradient of the input
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    x, g = torch.randn(6, 3, 2, 2).double(), torch.randn(6, 3, 2, 2).double()

    begin, end = (1, 6) if rank == ranks - 1 else (rank, rank + 1) if rank == 0 else (1, 1)

    ours, theirs = nn.SyncBatchNorm(3, momentum=None).double(), nn.BatchNorm2d(3, momentum=None).double()
    mine_x, whole_x = x[begin:end].clone().requires_grad_(), x.clone().requires_grad_()
    out, expected_out = ours(mine_x), theirs(whole_x)
    out.backward(g[begin:end])
    expected_out.backward(g)
    assert end == begin or float((out - expected_out[begin:end]).abs().max()) < 1e-12
    assert end == begin or float((mine_x.grad - whole_x.grad[begin:end]).abs().max()) < 1e-12
    dist.all_reduce(ours.weight.grad)
    assert float((ours.weight.grad - theirs.weight.grad).abs().max()) < 1e-12
    assert float((ours.running_var - theirs.running_var).abs().max()) < 1e-12


def hooks_of_communication() -> None:
    expected = alone()
    limits = {"allreduce_hook": 1e-12, "fp16_compress_hook": 5e-2, "bf16_compress_hook": 0.2}
    for name, limit in limits.items():
        ddp = DistributedDataParallel(model(), bucket_cap_mb=0.0005)
        ddp.register_comm_hook(None, getattr(default_hooks, name))
        train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), mine(data()))
        plain = model()
        train(plain, torch.optim.SGD(plain.parameters(), lr=0.1), data())
        assert distance(ddp.module, plain) < limit, (name, distance(ddp.module, plain))
    seen = []

    def hook(state: Any, bucket: dist.GradBucket) -> Any:  # type: ignore[name-defined]
        seen.append((state, bucket.index(), bucket.is_last(), [g.shape for g in bucket.gradients()]))
        return default_hooks.allreduce_hook(None, bucket)

    wrapped = DistributedDataParallel(model())
    wrapped.register_comm_hook("state", default_hooks.fp16_compress_wrapper(hook))
    loss_of(wrapped, *mine(data(1))[0]).backward()
    assert seen[0][:3] == ("state", 0, True) and len(seen[0][3]) == 6 and expected is not None
    raises(RuntimeError, "only be called once", lambda: wrapped.register_comm_hook(None, hook))
    raises(TypeError, "must be callable", lambda: ddp.register_comm_hook(None, 3))


SMALL = {"bucket_cap_mb": 0.0005}  # three buckets
COMPILED: list[tuple[dict[str, Any], Any, float, int]] = [  # options, hook, distance from one process, messages of a step
    ({}, None, 1e-12, 1),
    ({**SMALL, "gradient_as_bucket_view": True}, None, 1e-12, 3),
    ({**SMALL, "find_unused_parameters": True}, None, 1e-12, 3),  # two buckets, and who has used what
    ({**SMALL, "static_graph": True}, None, 1e-12, 3),
    (SMALL, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 5e-2, 3),
    ({}, default_hooks.bf16_compress_hook, 0.2, 1),
]  # fmt: skip


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1)


def stepping(ddp: Any, optimizer: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(ddp, x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def compiled_steps() -> None:
    """Forward, backward with the averages, and the optimizer are one program."""
    expected = model()
    train(expected, sgd(expected.parameters()), data())
    for options, hook, limit, messages in COMPILED:
        module = model()
        ddp = DistributedDataParallel(module, **options)
        if hook is not None:
            ddp.register_comm_hook(None, hook)
        step = stepping(ddp, sgd(ddp.parameters()))
        compiled = dg.compile(step, mode="max")
        for k, (x, y) in enumerate(mine(data())):
            if k == 12 and dist.get_rank() == 0:  # other ranks' programs send what a plain step does
                step(x, y)
            else:
                compiled(x, y)
        assert distance(module, expected) < limit, (options, hook, distance(module, expected))
        graph = str(compiled.last_graph)
        sent = sum(graph.count(f"call={name}(") for name in ("started", "started_where_it_lies", "exchanged"))
        assert sent == messages, (options, hook, sent)
        assert "_params_0__array" in graph.splitlines()[-1], (options, hook)
        if "gradient_as_bucket_view" in options:  # no memory is new but the loss's
            assert compiled.last_graph.into.count(None) == 1, graph


def halves() -> None:
    """Gradients of bfloat16 are added up in float32, divided there and rounded once, as views of buckets and in programs, too."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x = (torch.arange(64.0).reshape(4, 16) / 64 + rank).to(torch.bfloat16)
    for dtype in (torch.bfloat16, torch.float16):
        alone = nn.Linear(16, 3000).to(dtype)
        with torch.no_grad():
            alone.weight.copy_(torch.arange(48000.0).reshape(3000, 16) % 5 / 5)
        every = [torch.zeros(3000, 16, dtype=dtype) for _ in range(ranks)]
        alone(x.to(dtype)).sum().backward()
        dist.all_gather(every, alone.weight.grad)
        mean = (sum(grad.float() for grad in every) / ranks).to(dtype)
        for as_views in (False, True):
            for compiles in (False, True):
                module = nn.Linear(16, 3000).to(dtype)
                ddp = DistributedDataParallel(module, gradient_as_bucket_view=as_views)

                def step(x: Any, ddp: Any = ddp) -> None:
                    ddp.zero_grad()
                    ddp(x).sum().backward()

                step = dg.compile(step, mode="max") if compiles else step
                for _ in range(3):
                    step(x.to(dtype))
                    assert module.weight.grad.dtype is dtype and torch.equal(module.weight.grad, mean), (dtype, as_views, compiles)


def compiled_steps_with_unused_parameters() -> None:
    """Rank 0 uses branch 0, others branch 1, nobody branch 2: what a rank has not used, others may have."""
    rank = dist.get_rank()
    plain, module = Branches(), Branches()
    steps = []
    for each in (plain, module):
        ddp = DistributedDataParallel(each, find_unused_parameters=True, bucket_cap_mb=1e-5)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)

        def step(x: Any, which: int, ddp: Any = ddp, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad(set_to_none=False)
            ddp(x, which).square().sum().backward()
            optimizer.step()

        steps.append(step)
    compiled = dg.compile(steps[1], mode="max")
    for turn in range(6):
        x = torch.arange(8.0).reshape(2, 4) / 8 + rank + turn / 10
        which = 2 if turn == 1 else min(rank, 1)  # so that all have gradients from then on
        steps[0](x, which), compiled(x, which)
        for a, b in zip(plain.parameters(), module.parameters()):
            assert torch.allclose(a, b, atol=1e-6) and (a.grad is None) == (b.grad is None), turn
            assert a.grad is None or torch.allclose(a.grad, b.grad, atol=1e-6), turn
    graph = str(compiled.last_graph)
    assert "where" in graph and graph.count("call=started_where_it_lies(") == len(ddp.reducer.buckets), graph


def hooks_that_break_programs() -> None:
    """At the second bucket, when the first one would have been sent: nothing is sent twice."""

    def hook(state: Any, bucket: Any) -> Any:
        if bucket.index() == 1:
            dg.graph_break()
        return default_hooks.allreduce_hook(None, bucket)

    world: Any = dist.distributed_c10d._get_default_group()
    expected, sent = model(), []
    train(expected, sgd(expected.parameters()), data())
    for compiles in (False, True):
        module = model()
        ddp = DistributedDataParallel(module, **SMALL)  # type: ignore[arg-type]
        ddp.register_comm_hook(None, hook)
        step = stepping(ddp, sgd(ddp.parameters()))
        step = dg.compile(step, mode="max") if compiles else step
        begin = world._started
        for x, y in mine(data()):
            step(x, y)
        sent.append(world._started - begin)
        assert distance(module, expected) < 1e-12
    assert sent[0] == sent[1] >= 60, sent


def what_does_not_fit() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    raises(RuntimeError, "doesn't have any parameter", lambda: DistributedDataParallel(nn.Tanh()))
    raises(ValueError, "device_ids", lambda: DistributedDataParallel(nn.Linear(1, 1), device_ids=[0]))
    last = rank == ranks - 1
    text = "with sizes [1, 3] appears not to match sizes of the same param in process 0"
    raises(RuntimeError, text, lambda: DistributedDataParallel(nn.Linear(3 if last else 2, 1)))
    raises(RuntimeError, "inconsistent", lambda: DistributedDataParallel(nn.Linear(2, 1, bias=last)))
    raises(TypeError, "mixed_precision must be", lambda: DistributedDataParallel(nn.Linear(2, 1), mixed_precision=1))


def gradients_written_into_buckets() -> None:
    """They are those that are copied there: fresh ones, those that add up, those with hooks."""
    for options in ({}, {"static_graph": True}, {"find_unused_parameters": True}):
        found: list[list[Any]] = []
        for as_views in (False, True):
            module = model()
            ddp = DistributedDataParallel(module, gradient_as_bucket_view=as_views, bucket_cap_mb=0.0005, **options)
            seen: list[Any] = []
            for k, (x, y) in enumerate(mine(data(8))):
                if k in (0, 1, 4, 6, 7):
                    ddp.zero_grad(set_to_none=k != 4)
                if k == 7:  # its hook comes after that of the reducer
                    module[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.shape))
                if k == 2 and not options:
                    with ddp.no_sync():
                        loss_of(ddp, x, y).backward()
                loss_of(ddp, x, y).backward()
                seen += [p.grad.clone() for p in module.parameters()]
            if as_views:
                assert all(p.grad is part for p, part in zip(ddp.reducer.parameters, ddp.reducer.part_of))
            found.append(seen)
        assert len(found[0]) == len(found[1])
        assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(*found)), options


def mixed_precision() -> None:
    """Computed and exchanged in other dtypes, with parameters, gradients and optimizer in their own."""
    low = torch.bfloat16

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)
            self.register_buffer("shift", torch.ones(16) / 3)
            self.seen: list[Any] = []

        def forward(self, x: Any, y: Any) -> Any:
            hidden = (self.first(x) + self.shift).tanh()
            self.seen += [x.dtype, self.first.weight.dtype, self.shift.dtype, hidden.dtype]
            return nn.functional.mse_loss(self.second(hidden), y)

    batches = [(x.float(), y.float()) for x, y in data(8)]
    own = [(x.float(), y.float()) for x, y in mine(data(8))]
    expected = Layers()
    train_losses(expected, batches, lambda module, x, y: module(x, y))
    for reduce_dtype, compiles in ((None, False), (torch.float32, False), (torch.float32, True), (None, True)):
        module = Layers()
        policy = _MixedPrecision(low, reduce_dtype, low)
        ddp = DistributedDataParallel(module, mixed_precision=policy, gradient_as_bucket_view=compiles, bucket_cap_mb=0.0005)
        assert module.shift.dtype is low and module.first.weight.dtype is torch.float32
        train_losses(ddp, own, lambda module, x, y: module(x, y), compiles)
        assert set(module.seen) <= {low} or compiles, module.seen
        for parameter in module.parameters():
            assert parameter.dtype is torch.float32 and parameter.grad.dtype is torch.float32
            if reduce_dtype is None:  # the average has been rounded
                assert torch.equal(parameter.grad, parameter.grad.to(low).float())
        pairs = zip(module.parameters(), expected.parameters())
        assert max(float((a - b).abs().max()) for a, b in pairs) < 5e-3, (reduce_dtype, compiles)
        raises(RuntimeError, "only be called once", lambda ddp=ddp: ddp.register_comm_hook(None, default_hooks.allreduce_hook))
    exact, module = Layers(), Layers()  # only exchanged in another dtype
    train_losses(exact, batches, lambda module, x, y: module(x, y))
    ddp = DistributedDataParallel(module, mixed_precision=_MixedPrecision(reduce_dtype=torch.float64))
    train_losses(ddp, own, lambda module, x, y: module(x, y))
    assert distance(module, exact) < 1e-6


def train_losses(module: Any, batches: Any, loss: Any, compiles: bool = False) -> None:
    """Steps of SGD."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        loss(module, x, y).backward()
        optimizer.step()

    step = dg.compile(step, mode="max") if compiles else step
    for x, y in batches:
        step(x, y)


CHECKS = [
    equals_one_process, gradients_written_into_buckets, buckets_follow_the_order_of_arrival, gradients_add_up_in_no_sync,
    unused_parameters_are_named,
    unused_parameters_are_found, inputs_may_be_uneven, uneven_inputs_with_divided_optimizer,
    buffers_are_those_of_the_first_rank, batch_norm_over_ranks, halves, mixed_precision, hooks_of_communication, compiled_steps,
    compiled_steps_with_unused_parameters, hooks_that_break_programs, what_does_not_fit,
]  # fmt: skip
