"""What training steps do beside their optimizer, in compiled functions: one program, the numbers of the plain steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.torch import nn
from dynagraph.torch.optim import lr_scheduler as schedulers
from dynagraph.torch.optim import swa_utils

F = nn.functional
Made = tuple[Callable[[], Any], Callable[[], list[Any]]]  # a step, and what it changes


def inputs() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return torch.tensor(rng.normal(size=(6, 4)), dtype=torch.float32), torch.tensor([0, 1, 1, 0, 1, 0])


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.BatchNorm1d(3), nn.Linear(3, 2))


def made(
    after: Callable[[Any, Any], Callable[[Any], Any]] = lambda net, optimizer: lambda loss: optimizer.step(),
    changed: Callable[[Any, Any], list[Any]] = lambda net, optimizer: [], **about: Any,
) -> Made:  # fmt: skip
    """`after`: what comes after backward(); `changed`: what it changes, but for parameters, buffers and the learning rate."""
    net, (x, y) = model(), inputs()
    optimizer = torch.optim.SGD(net.parameters(), **{"lr": 0.1, "momentum": 0.9, **about})
    end = after(net, optimizer)

    def step() -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        end(loss)
        return loss

    return step, lambda: [*net.parameters(), *net.buffers(), optimizer.param_groups[0]["lr"], *changed(net, optimizer)]


def same(got: Any, wanted: Any) -> None:
    got, wanted = (value.detach().numpy() if isinstance(value, torch.Tensor) else value for value in (got, wanted))
    np.testing.assert_allclose(got, wanted, rtol=2e-5)


def clipped(**about: Any) -> Made:
    def after(net: Any, optimizer: Any) -> Callable[[Any], Any]:
        def end(loss: Any) -> None:
            nn.utils.clip_grad_norm_(net.parameters(), 0.1, **about)
            optimizer.step()

        return end

    return made(after)


def averaged(**about: Any) -> Made:
    kept: list[Any] = []

    def after(net: Any, optimizer: Any) -> Callable[[Any], Any]:
        average = swa_utils.AveragedModel(net, **about)
        kept.append(average)

        def end(loss: Any) -> None:
            optimizer.step()
            average.update_parameters(net)

        return end

    return made(after, lambda net, optimizer: [*kept[0].parameters(), *kept[0].buffers()])


def scaled(unscales: bool = False, dtype: Any = None, scale: float = 1024.0) -> Made:
    net, (x, y) = model(), inputs()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)

    def step() -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        if unscales:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step, lambda: [*net.parameters(), scaler.get_scale()]


def autocast() -> Made:
    net, (x, y) = model(), inputs()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu"):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, lambda: list(net.parameters())


def scheduled(make: Callable[[Any], Any]) -> Made:
    """The scheduler steps beside the compiled function."""
    kept: list[Any] = []

    def after(net: Any, optimizer: Any) -> Callable[[Any], Any]:
        kept.append(make(optimizer))
        return lambda loss: optimizer.step()

    step, changed = made(after)
    return step, lambda: (kept[0].step(), changed())[1]


def scheduled_inside(make: Callable[[Any], Any]) -> Made:
    def after(net: Any, optimizer: Any) -> Callable[[Any], Any]:
        scheduler = make(optimizer)

        def end(loss: Any) -> None:
            optimizer.step()
            scheduler.step()

        return end

    return made(after)


def plateau(twice: bool = False, rate: Any = 0.1, **about: Any) -> Made:
    """What is measured decides the learning rate: with such a threshold, no loss is better."""
    kept: list[Any] = []

    def after(net: Any, optimizer: Any) -> Callable[[Any], Any]:
        scheduler = schedulers.ReduceLROnPlateau(optimizer, **{"patience": 1, "threshold": 0.9, "factor": 0.5, **about})
        kept.append(scheduler)

        def end(loss: Any) -> None:
            optimizer.step()
            scheduler.step(loss)
            if twice:
                scheduler.step(loss * 2)

        return end

    def changed(net: Any, optimizer: Any) -> list[Any]:
        own = kept[0]
        return [own.best, own.num_bad_epochs, own.cooldown_counter, own.last_epoch, *own._last_lr, *own.min_lrs]

    return made(after, changed, lr=rate)


def bags(mode: str, **about: Any) -> Made:
    torch.manual_seed(0)
    table = nn.EmbeddingBag(10, 3, mode=mode, **about)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    places, offsets = torch.tensor([1, 2, 2, 4, 1, 9]), torch.tensor([0, 2, 5])

    def step() -> Any:
        optimizer.zero_grad()
        loss = table(places, offsets).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    return step, lambda: list(table.parameters())


def in_turn(optimizer: Any) -> Any:
    parts = [schedulers.LinearLR(optimizer, 0.1, total_iters=2), schedulers.ExponentialLR(optimizer, 0.9)]
    return schedulers.SequentialLR(optimizer, parts, [2])


PROGRAMS: dict[str, Callable[[], Made]] = {
    "clipped": clipped,
    "clipped, errors": lambda: clipped(error_if_nonfinite=True),
    "averaged": averaged,
    "averaged, EMA, buffers": lambda: averaged(multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True),
    "averaged, EMA of each": lambda: averaged(avg_fn=swa_utils.get_ema_avg_fn(0.9)),
    "scaled": scaled,
    "scaled, clipped": lambda: scaled(True),
    "scaled, float16": lambda: scaled(False, torch.float16),
    "autocast": autocast,
    "one cycle": lambda: scheduled(lambda o: schedulers.OneCycleLR(o, 0.5, total_steps=20)),
    "schedulers in turn": lambda: scheduled_inside(in_turn),
    "one cycle inside": lambda: scheduled_inside(lambda o: schedulers.OneCycleLR(o, 0.5, total_steps=20)),
    "cyclic inside": lambda: scheduled_inside(lambda o: schedulers.CyclicLR(o, 0.1, 0.5, step_size_up=2, mode="triangular2")),
    "milestones inside": lambda: scheduled_inside(lambda o: schedulers.MultiStepLR(o, [30, 50])),
    "polynomial inside": lambda: scheduled_inside(lambda o: schedulers.PolynomialLR(o, total_iters=20, power=2.0)),
    "restarts inside": lambda: scheduled_inside(lambda o: schedulers.CosineAnnealingWarmRestarts(o, 10)),
    "plateau": plateau,
    "plateau, cooldown": lambda: plateau(mode="max", cooldown=1, threshold_mode="abs", min_lr=[0.03]),
    "plateau, two measures": lambda: plateau(True),
    "bags of sums": lambda: bags("sum"),
    "bags of means": lambda: bags("mean", max_norm=1.0, padding_idx=2),
    "bags of maxima": lambda: bags("max"),
}
# programs: some epochs are numbers of the code's
FEW = {"schedulers in turn": 6} | {f"{name} inside": 4 for name in ("one cycle", "cyclic", "milestones", "polynomial", "restarts")}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_is_one_program(name: str) -> None:
    (step, changed), (plain, expected) = PROGRAMS[name](), PROGRAMS[name]()
    compiled = dg.compile(step, mode="max", backend="numpy", fullgraph=True)
    for _ in range(6):
        assert compiled().item() == pytest.approx(plain().item(), rel=1e-6)
        for got, wanted in zip(changed(), expected(), strict=True):
            same(got, wanted)
    counters = compiled.counters()
    assert counters["misses"] <= FEW.get(name, 2) and counters["refusals"] == 0
    assert not compiled.stats.fallbacks


def test_a_step_that_the_scaler_skips_is_left_to_python() -> None:
    (step, changed), (plain, expected) = (scaled(False, torch.float16, 2.0**20) for _ in range(2))
    compiled = dg.compile(step, mode="max", backend="numpy")
    for _ in range(4):
        compiled(), plain()
        for got, wanted in zip(changed(), expected(), strict=True):
            same(got, wanted)
    assert compiled.counters()["refusals"] >= 1


def minimized() -> Callable[[], Any]:
    net, (x, y) = model().double(), inputs()
    x = x.double()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=5, history_size=3, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


def test_closures_of_lbfgs_are_compiled() -> None:
    """A step is left to Python, which calls the closure's program: two programs, however many iterations and searches."""
    plain, compiled = minimized(), dg.compile(minimized(), mode="max", backend="numpy")
    for _ in range(4):
        assert compiled().item() == pytest.approx(plain().item(), rel=1e-7)
    assert compiled.stats.compiles == 2 and len(compiled.stats.breaks) == 1 and not compiled.stats.fallbacks


def test_measures_of_python_need_no_program_each() -> None:
    """A number that is measured elsewhere is handed on unseen."""
    parameter = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = schedulers.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)

    def measured(x: Any, value: float) -> Any:
        scheduler.step(value)
        return x * 2

    compiled = dg.compile(measured, mode="max", backend="numpy", fullgraph=True)
    for k in range(8):
        compiled(torch.ones(3), 1.0 + k)
        assert scheduler.best == 1.0 and optimizer.param_groups[0]["lr"] == 0.5**k and scheduler._last_lr == [0.5**k]
    compiled(torch.ones(3), 0.25)
    assert scheduler.best == 0.25 and scheduler.num_bad_epochs == 0 and scheduler.last_epoch == 9
    compiled(torch.ones(3), torch.tensor(0.125))  # no float: another program
    assert scheduler.best == 0.125 and compiled.counters()["misses"] == 2


@pytest.mark.parametrize("reads", ["rate", "best", "last", "step", "state"])
def test_what_a_plateau_decided_is_read_behind_a_break(reads: str) -> None:
    def trained(compiles: bool) -> tuple[list[Any], Any]:
        parameter = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        scheduler = schedulers.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (parameter * x).sum()
            loss.backward()
            scheduler.step(loss.detach().abs() + 1)
            if reads == "rate":
                return optimizer.param_groups[0]["lr"]
            if reads == "best":
                return scheduler.best * 2
            if reads == "last":
                return scheduler.get_last_lr()
            if reads == "step":
                optimizer.step()
                return parameter.tolist()
            return scheduler.state_dict()

        run = dg.compile(step, mode="max", backend="numpy") if compiles else step
        return [run(torch.full((2,), float(k))) for k in (1, 2, 3, 1, 0, 5)], run

    (got, compiled), (expected, _) = trained(True), trained(False)
    assert got == expected
    assert compiled.stats.breaks and not compiled.stats.fallbacks


@pytest.mark.parametrize("rate, measure", [(torch.tensor(0.5), 1.0), (0.5, torch.tensor([1.0, 2.0])), (0.5, torch.tensor(3))])
def test_plateaus_that_are_left_to_python(rate: Any, measure: Any) -> None:
    """Rates that are tensors are written to; two numbers are an error; ints are of another kind."""
    found = []
    for compiles in (False, True):
        parameter = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([parameter], lr=rate.clone() if isinstance(rate, torch.Tensor) else rate)
        scheduler = schedulers.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        compiled = dg.compile(lambda m, s=scheduler: s.step(m), mode="max", backend="numpy")
        found.append([])
        for _ in range(3):
            try:
                (compiled if compiles else scheduler.step)(measure)
            except ValueError as error:
                found[-1].append(str(error))
            found[-1].append([float(optimizer.param_groups[0]["lr"]), scheduler.best, scheduler.last_epoch])
    assert found[0] == found[1] and compiled.stats.breaks and not compiled.stats.fallbacks
