"""Parameters, gradients and states divided among ranks, against one process."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

import dynagraph as dg
from dynagraph import torch
from dynagraph.torch import distributed as dist
from dynagraph.torch import nn
from dynagraph.torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from dynagraph.torch.distributed.optim import ZeroRedundancyOptimizer
from dynagraph.torch.distributed.tensor import DTensor
from dynagraph.torch.nn.parallel import DistributedDataParallel
from tests.torch.data_parallel.common import adam, alone, data, distance, loss_of, mine, model, raises, train


def sharded(**options: Any) -> Any:
    """The model, each linear layer for itself; the outermost group has the rest, which is nothing, or all without layers."""
    module = model()
    for layer in module:
        if isinstance(layer, nn.Linear) and layer is not module[4]:
            fully_shard(layer, **options)
    return fully_shard(module, **options)


def whole(module: Any) -> dict[str, Any]:
    """The state dict with whole tensors."""
    return {name: v.full_tensor() if isinstance(v, DTensor) else v for name, v in module.state_dict().items()}


def divided_states() -> None:
    expected = alone()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for as_views in (False, True):
        ddp = DistributedDataParallel(model(), gradient_as_bucket_view=as_views)
        zero = ZeroRedundancyOptimizer(
            ddp.parameters(), torch.optim.Adam, parameters_as_bucket_view=as_views, lr=1e-2
        )  # fmt: skip
        scheduler = torch.optim.lr_scheduler.StepLR(zero, 100)
        train(ddp, zero, mine(data())[:10])
        scheduler.step()
        if as_views:  # another optimizer goes on with the states
            raises(RuntimeError, "consolidate_state_dict", zero.state_dict)
            zero.consolidate_state_dict(to=ranks - 1)
            states = [zero.state_dict() if rank == ranks - 1 else None]
            dist.broadcast_object_list(states, src=ranks - 1)
            zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=3.0)
            zero.load_state_dict(states[0])
        train(ddp, zero, mine(data())[10:])
        assert distance(ddp.module, expected) < 1e-12
        elements = sum(t.numel() for state in zero.optim.state.values() for t in state.values() if t.dim())
        every = [torch.zeros(1) for _ in range(ranks)]
        dist.all_gather(every, torch.tensor([float(elements)]))
        count = sum(p.numel() for p in ddp.parameters())
        assert sum(int(e) for e in every) == 2 * count and max(int(e) for e in every) < 2 * count


def divided_parameters() -> None:
    expected = alone()
    for keeps in (False, True) if dist.get_world_size() == 2 else (False,):
        module = sharded(reshard_after_forward=keeps)
        optimizer = adam(module.parameters())
        train(module, optimizer, mine(data()))
        states = whole(module)
        assert distance(states, expected) < 1e-12, keeps
        weight = module[0].weight
        assert isinstance(module, FSDPModule) and isinstance(module[0], nn.Linear) and isinstance(weight, nn.Parameter)
        assert isinstance(weight, DTensor) and tuple(weight.shape) == (16, 6) and type(module[0]).__name__ == "FSDPLinear"
        assert weight.to_local().shape[0] == 16 // dist.get_world_size()
        assert all(s["exp_avg"].shape == p.to_local().shape for p, s in optimizer.state.items())
    other = sharded()
    other.load_state_dict(module.state_dict())
    assert distance(whole(other), states) == 0
    other.load_state_dict(expected.state_dict())  # whole tensors: each rank takes its rows
    assert distance(whole(other), expected) == 0
    with torch.no_grad():
        x = data(1)[0][0]
        assert float((other(x) - expected(x)).abs().max()) < 1e-12
    raises(ValueError, "scalar parameters", lambda: fully_shard(_Scalar()))


class _Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))


class Tied(nn.Module):
    """A weight with two names, a frozen layer, one that is not used, and a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Linear(6, 5, bias=False)
        self.head = nn.Linear(6, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen, self.unused = nn.Linear(5, 5).requires_grad_(False), nn.Linear(2, 2)
        self.block = nn.Sequential(nn.Linear(5, 6), nn.Tanh())
        self.double()

    def forward(self, x: Any) -> Any:
        hidden = self.frozen(self.embedding(x)).tanh()
        hidden = torch.utils.checkpoint.checkpoint(self.block, hidden, use_reentrant=False)
        return self.head(hidden)


def unusual_models() -> None:
    def loss(module: Any, x: Any, y: Any) -> Any:
        return nn.functional.mse_loss(module(x)[:, :3], y)

    expected, module = Tied(), Tied()
    fully_shard(module.block)
    fully_shard(module.unused)
    fully_shard(module)
    assert module.head.weight is module.embedding.weight
    trained = [p for p in expected.parameters() if p.requires_grad]
    divided = [p for p in module.parameters() if p.requires_grad]
    for step, ((x, y), (own_x, own_y)) in enumerate(zip(data(), mine(data()))):
        last = step % 3 == 2  # sums of gradients over three batches
        module.set_requires_gradient_sync(last)
        loss(expected, x, y).backward()
        loss(module, own_x, own_y).backward()
        if last:
            norms = [nn.utils.clip_grad_norm_(parameters, 0.05) for parameters in (trained, divided)]
            assert abs(float(norms[0]) - float(norms[1])) < 1e-12
            with torch.no_grad():
                for parameters in (trained, divided):
                    for p in parameters:
                        if p.grad is not None:
                            (p.to_local() if isinstance(p, DTensor) else p).sub_(
                                p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
                            )
                            p.grad = None
    assert distance(whole(module), expected) < 1e-12


def mixed_precision() -> None:
    module = sharded(mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    module._fsdp_state.policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
    seen: list[Any] = []
    module[2].register_forward_pre_hook(lambda m, args: seen.append((m.weight.dtype, args[0].dtype)))
    train(module, torch.optim.SGD(module.parameters(), lr=0.1), mine(data()))
    expected = model()
    train(expected, torch.optim.SGD(expected.parameters(), lr=0.1), data())
    assert 0 < distance(whole(module), expected) < 0.02
    assert seen[0] == (torch.bfloat16, torch.bfloat16) and module[2].weight.dtype == torch.float64
    assert module[2].weight.grad.dtype == torch.float64 and module(data(1)[0][0]).dtype == torch.float32


def _compiled_training(module: Any, steps: int = 6, **options: Any) -> Any:
    """Compiled steps over batches; one rank runs one of them plainly: what is sent is the same."""
    optimizer = adam(module.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(module, x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = dg.compile(step, **{"mode": "max", "fullgraph": True, **options})
    for k, (x, y) in enumerate(mine(data(steps))):
        if k == 3 and dist.get_rank() == 0:
            step(x, y)
        else:
            compiled(x, y)
    return compiled


def compiled_steps_of_divided_modules() -> None:
    """Forward, backward and the optimizer are one program, and between programs no rank has whole parameters."""
    expected = model()
    train(expected, adam(expected.parameters()), data(6))
    for keeps, collectives in ((None, 11), (True, 9)):
        module = sharded(reshard_after_forward=None if keeps is None else not keeps)
        compiled = _compiled_training(module)
        assert distance(whole(module), expected) < 1e-12, keeps
        assert compiled.stats.compiles + compiled.stats.restored == 1, (compiled.stats, compiled.stats.breaks)
        assert str(compiled.last_graph).count("= effect_call(") == collectives, (keeps, compiled.last_graph)
        for group in module._groups():
            assert not group.is_whole and all(0 in p.whole._array.strides and p.whole._grad is None for p in group.places)
            assert all(isinstance(m._parameters[name], DTensor) for p in group.places for m, name in p.holders)


def compiled_steps_of_other_kinds() -> None:
    expected = model()
    train(expected, adam(expected.parameters()), data(6))
    module = sharded()
    module.set_reshard_after_backward(False)  # whole between programs
    _compiled_training(module, fullgraph=False)
    assert distance(whole(module), expected) < 1e-12
    half, plain = (sharded(mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)) for _ in range(2))
    compiled = _compiled_training(half)
    train(plain, adam(plain.parameters()), mine(data(6)))
    assert distance(whole(half), whole(plain)) < 5e-3 and compiled.stats.compiles + compiled.stats.restored == 1
    # forward alone is compiled
    module = sharded()
    train(forward := dg.compile(module, mode="max"), adam(module.parameters()), mine(data(6)))
    assert distance(whole(module), expected) < 1e-12
    with torch.no_grad():
        x = data(1)[0][0]
        for _ in range(3):
            assert float((forward(x) - expected(x)).abs().max()) < 1e-12
    # sums of gradients, and a checkpoint within
    ours, theirs = (Tied() for _ in range(2))
    for each in (ours, theirs):
        fully_shard(each.block)
        fully_shard(each.unused)
        fully_shard(each)

    def accumulated(tied: Any, x: Any, y: Any) -> Any:
        nn.functional.mse_loss(tied(x)[:, :3], y).backward()

    compiled = dg.compile(accumulated, mode="max")
    optimizers = [torch.optim.SGD(tied.parameters(), lr=0.1) for tied in (ours, theirs)]
    for k, (x, y) in enumerate(mine(data(6))):
        for tied, run in ((ours, compiled), (theirs, accumulated)):
            tied.set_requires_gradient_sync(k % 3 == 2)
            run(tied, x, y)
        if k % 3 == 2:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    assert distance(whole(ours), whole(theirs)) < 1e-12


def _scaled_training(module: Any, step_of: Any = lambda step: step) -> list[float]:
    """With a gradient that is not finite in one step, on the last rank alone where there are several; the scales."""
    optimizer = adam(module.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    last = not isinstance(module, FSDPModule) or dist.get_rank() == dist.get_world_size() - 1

    def step(x: Any, y: Any, bad: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(module, x, y)
        scaler.scale(loss).backward()
        grad: Any = next(module.parameters()).grad
        (grad.to_local() if isinstance(grad, DTensor) else grad).add_(bad)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    run, scales = step_of(step), []
    for k, (x, y) in enumerate(data(6)):
        own = mine([(x, y)])[0] if isinstance(module, FSDPModule) else (x, y)
        run(*own, torch.full((), torch.inf if k == 3 and last else 0.0, dtype=torch.float64))
        scales.append(scaler.get_scale())
    return scales


def scaled_gradients() -> None:
    """A step is skipped on all ranks, whoever found a gradient that is not finite; in programs, too."""
    expected = model()
    scales = _scaled_training(expected)
    assert scales == [1024.0, 2048.0, 2048.0, 1024.0, 1024.0, 2048.0]
    for step_of in (lambda step: step, lambda step: dg.compile(step, mode="max")):
        module = sharded()
        assert _scaled_training(module, step_of) == scales
        assert distance(whole(module), expected) < 1e-12


def compiled_steps_with_checkpoints() -> None:
    """Blocks are gathered and computed again in backward: one program."""

    class Checkpointed(nn.Module):
        def __init__(self, layers: Any):
            super().__init__()
            self.layers = layers

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if isinstance(layer, nn.Linear) else layer(x)
            return x

    expected = model()
    train(expected, adam(expected.parameters()), data(6))
    module = Checkpointed(model())
    for layer in module.layers:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(module)
    compiled = _compiled_training(module)
    assert distance({name.removeprefix("layers."): v for name, v in whole(module).items()}, expected) < 1e-12
    assert compiled.stats.compiles + compiled.stats.restored == 1, (compiled.stats, compiled.stats.breaks)


def memory_of_each_rank() -> None:
    """Bytes of arrays that a rank holds between steps and the most within one, of a model of 8 layers."""
    ranks, width, layers = dist.get_world_size(), 128, 8
    weights = layers * width * width * 4

    def build() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)])

    def bytes_held(module: Any, optimizer: Any) -> dict[str, int]:
        parameters = [p.to_local() if isinstance(p, DTensor) else p for p in module.parameters()]
        states = getattr(optimizer, "optim", optimizer).state.values()
        return {
            "parameters": sum(p._array.nbytes for p in parameters),
            "gradients": sum(p.grad._array.nbytes for p in module.parameters() if p.grad is not None),
            "states": sum(t._array.nbytes for state in states for t in state.values() if t.dim()),
        }

    def step(module: Any, optimizer: Any) -> dict[str, int]:
        for _ in range(2):
            optimizer.zero_grad()
            module(torch.ones(4, width)).square().mean().backward()
            optimizer.step()
        return bytes_held(module, optimizer)

    ddp = DistributedDataParallel(build(), gradient_as_bucket_view=True)
    assert step(ddp, torch.optim.Adam(ddp.parameters())) == {"parameters": weights, "gradients": weights, "states": 2 * weights}
    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam)
    assert step(ddp, zero) == {"parameters": weights, "gradients": weights, "states": 2 * weights // ranks}
    most = {}
    for keeps in (False, True):  # stages 2 and 3
        module = build()
        for layer in module:
            fully_shard(layer, reshard_after_forward=not keeps)
        fully_shard(module)
        held: list[int] = []
        for layer in module:  # arrays of whole weights that live when a layer begins and ends
            def note(*_: Any, m: Any = module, h: list[int] = held) -> None:
                h.append(_whole_bytes(m))

            layer.register_forward_pre_hook(note)
            layer.register_forward_hook(lambda _, args, out, note=note: out.register_hook(note) and None)
        divided = step(module, torch.optim.Adam(module.parameters()))
        share = weights // ranks
        assert divided == {"parameters": share, "gradients": share, "states": 2 * share}, divided
        assert _whole_bytes(module) == 0
        most[keeps] = max(held)
    assert most == {True: weights, False: weights // layers}, most


def _whole_bytes(module: Any) -> int:
    arrays = [place.whole._array for layer in module for place in layer._fsdp_state.group.places]
    return sum(a.nbytes for a in arrays if 0 not in a.strides)


def checkpoints() -> None:
    """Written by these ranks, read by groups of other sizes: of one rank each, and of all."""
    checkpoint = dist.checkpoint
    folders = [tempfile.mkdtemp() if dist.get_rank() == 0 else None for _ in range(2)]
    dist.broadcast_object_list(folders)
    module = sharded()
    optimizer = adam(module.parameters())
    train(module, optimizer, mine(data())[:10])
    get, put = checkpoint.state_dict.get_state_dict, checkpoint.state_dict.set_state_dict
    states, optimizer_states = get(module, optimizer)
    assert isinstance(states["0.weight"], DTensor) and isinstance(optimizer_states["state"]["0.weight"]["exp_avg"], DTensor)
    checkpoint.save({"model": states, "optimizer": optimizer_states, "step": 10}, checkpoint_id=folders[0])
    # pairs of ranks
    ranks = dist.get_world_size()
    pairs = dist.device_mesh.init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("pair", "member"))["member"]
    of_pairs = fully_shard(model(), mesh=pairs)
    checkpoint.load({"model": of_pairs}, checkpoint_id=folders[0])
    assert of_pairs[0].weight.to_local().shape[0] == 8 and distance(whole(of_pairs), whole(module)) == 0
    # one process
    plain = model()
    single = adam(plain.parameters())
    state: dict[str, Any] = dict(zip(("model", "optimizer"), get(plain, single)))
    state["step"] = 0
    checkpoint.load(state, checkpoint_id=folders[0])
    put(plain, single, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    assert state["step"] == 10 and distance(plain, whole(module)) == 0
    train(plain, single, data()[10:])
    assert distance(plain, alone()) < 1e-12
    # DistributedDataParallel writes, divided modules read
    ddp = DistributedDataParallel(plain)
    parts = dict(zip(("model", "optimizer"), get(ddp, single)))
    assert "0.weight" in parts["model"]
    checkpoint.save(parts, checkpoint_id=folders[1])
    other = sharded()
    again = adam(other.parameters())
    parts = dict(zip(("model", "optimizer"), get(other, again)))
    checkpoint.load(parts, checkpoint_id=folders[1])
    put(other, again, model_state_dict=parts["model"], optim_state_dict=parts["optimizer"])
    assert distance(whole(other), plain) == 0
    x, y = data(1)[0]
    train(plain, single, [(x, y)])
    train(other, again, mine([(x, y)]))
    assert distance(whole(other), plain) < 1e-12
    options = checkpoint.state_dict.StateDictOptions(full_state_dict=True)
    full = checkpoint.state_dict.get_model_state_dict(other, options=options)
    assert type(full["0.weight"]) is torch.Tensor and distance(full, plain) < 1e-12
    assert np.isfinite(distance(full, plain)) and loss_of(other, x, y).item() >= 0


CHECKS = [
    divided_states, divided_parameters, unusual_models, mixed_precision, compiled_steps_of_divided_modules,
    compiled_steps_of_other_kinds, scaled_gradients, compiled_steps_with_checkpoints, memory_of_each_rank, checkpoints,
]  # fmt: skip
