"""Optimizers and schedulers against real torch (`make conformance`, and wherever torch is installed)."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as own
from tests.torch.optim.cases import (
    COMBINED,
    OPTIMIZERS,
    SCHEDULERS,
    STEPS,
    Case,
    advance,
    make_scheduler,
    name_of,
    parameters,
    run,
    schedule,
    tolerance_of,
)
from tests.torch.optim.scenarios import cases_of_scenarios, check_same, id_of, outcome
from tests.torch.optim.sparse_cases import SPARSE, train

torch = pytest.importorskip("torch")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", OPTIMIZERS, ids=name_of)
def test_fifty_steps(case: Case, dtype: str) -> None:
    theirs, optimizer = run(torch, case, dtype)
    ours, other = run(own, case, dtype)
    for a, b in zip(theirs, ours):
        np.testing.assert_allclose(b, a, rtol=tolerance_of(case, dtype), atol=tolerance_of(case, dtype))
    assert repr(other) == repr(optimizer)
    for a, b in zip(optimizer.state_dict()["param_groups"], other.state_dict()["param_groups"]):
        assert list(a) == list(b)
    expected, got = optimizer.state_dict()["state"], other.state_dict()["state"]
    assert {k: list(v) for k, v in got.items()} == {k: list(v) for k, v in expected.items()}
    for k, state in expected.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and name != "t":  # a length, which is a float here
                assert str(value.dtype) == str(got[k][name].dtype) and value.shape == tuple(got[k][name].shape), name


@pytest.mark.sampled(60)
@pytest.mark.parametrize("pair", cases_of_scenarios(), ids=id_of)
def test_scenarios(pair: tuple[Case, str]) -> None:
    tolerance = tolerance_of(pair[0], "float64")
    check_same(outcome(own, *pair), outcome(torch, *pair), tolerance, max(tolerance, 5e-6))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_fifty_steps_of_sparse_gradients(case: Case, compiles: bool) -> None:
    def wrap(step: Any) -> Any:
        return dg.compile(step, mode="max", backend="numpy", fullgraph=True) if compiles else step

    def size_of(k: int) -> int:
        return (7, 12, 0, 5, 1)[k % 5]

    theirs, optimizer = train(torch, case, size_of=size_of)
    with dg.config.override(stay_eager=False):
        ours, other = train(own, case, size_of=size_of, wrap=wrap)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    expected, got = optimizer.state_dict()["state"], other.state_dict()["state"]
    assert {k: list(v) for k, v in got.items()} == {k: list(v) for k, v in expected.items()}
    for k, state in expected.items():
        for name, value in state.items():
            assert type(got[k][name]).__name__ == type(value).__name__ or value.is_sparse
            if isinstance(value, torch.Tensor):
                np.testing.assert_allclose(got[k][name].to_dense().numpy(), value.to_dense().numpy(), rtol=1e-6, atol=1e-12)


LINES: dict[str, Callable[[Any], Any]] = {
    "parabola": lambda x: (x - 1) ** 2,
    "quartic": lambda x: (x - 1) ** 4 - 0.3 * x,
    "waves": lambda x: -x + (5 * x).sin(),
    "steep": lambda x: (3 * x - 6).cosh(),
    "falling": lambda x: -x,
    "a step": lambda x: -(20 * (x - 0.7)).tanh() + 0.1 * x * x,
}


@pytest.mark.parametrize("most", [25, 3])
@pytest.mark.parametrize("length", [1e-3, 0.1, 1.0, 7.0, 300.0])
@pytest.mark.parametrize("line", LINES)
def test_searches_along_lines(line: str, length: float, most: int) -> None:
    """As LBFGS makes them: the same trials, which end at the same point."""
    found = []
    for library in (torch, own):
        tried = []

        def evaluate(x: Any, t: float, d: Any, library: Any = library, tried: Any = tried) -> tuple[float, Any]:
            tried.append(float(t))
            point = (x + t * d).requires_grad_()
            loss = LINES[line](point).sum()
            (grad,) = library.autograd.grad(loss, point)
            return loss.item(), grad

        start, direction = library.zeros(1, dtype=library.float64), library.ones(1, dtype=library.float64)
        loss, grad = evaluate(start, 0.0, direction)
        search = importlib.import_module(f"{library.__name__}.optim.lbfgs")._strong_wolfe
        ended = search(evaluate, start, length, direction, loss, grad, grad.dot(direction), max_ls=most)
        found.append([float(ended[0]), *ended[1].tolist(), float(ended[2]), ended[3], *tried])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-7, atol=1e-8)  # a slope is 1 or more at the start, about 0 at the end


def converted(state: Any, given: Any, tensor: Any) -> Any:
    """A state dict with another library's tensors."""
    if isinstance(state, given):
        return tensor(np.array(state.detach().numpy()))
    if isinstance(state, dict):
        return {k: converted(v, given, tensor) for k, v in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(converted(v, given, tensor) for v in state)
    return copy.deepcopy(state)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", [c for c in OPTIMIZERS if c[0] != "Muon"], ids=name_of)
def test_states_go_from_one_to_the_other(case: Case) -> None:
    name, options = case
    for first, second in ((torch, own), (own, torch)):
        params, targets = parameters(first, name, "float64")
        optimizer = getattr(first.optim, name)(params, **options)
        advance(first, name, optimizer, params, targets, range(5))
        others, aims = parameters(second, name, "float64")
        for p, q in zip(params, others):
            q.data = second.tensor(p.detach().numpy().copy())
        other = getattr(second.optim, name)(others, **options)
        other.load_state_dict(converted(optimizer.state_dict(), first.Tensor, second.tensor))
        advance(first, name, optimizer, params, targets, range(5, 10))
        advance(second, name, other, others, aims, range(5, 10))
        for p, q in zip(params, others):
            np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", SCHEDULERS, ids=name_of)
def test_rates(case: Case) -> None:
    for by_epoch in (False, True)[: 1 if case[0] in COMBINED else 2]:
        theirs, ours = schedule(torch, case, by_epoch), schedule(own, case, by_epoch)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]


@pytest.mark.parametrize("name, in_tensors", [("SGD", True), ("Adam", False), ("Adam", True)])
@pytest.mark.parametrize("case", SCHEDULERS, ids=name_of)
def test_options_and_states_of_schedulers(case: Case, name: str, in_tensors: bool) -> None:
    found = []
    for library in (torch, own):
        optimizer, scheduler = make_scheduler(library, case, name, in_tensors)
        seen = []
        for k in range(STEPS):
            optimizer.step()
            scheduler.step(*[1.0 + k % 7] if case[0] == "ReduceLROnPlateau" else [])
            if k in (5, 17):  # what a user does
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] * 0.5
            seen.append([[float(g["lr"]), g.get("momentum"), g.get("betas")] for g in optimizer.param_groups])
            seen.append([float(rate) for rate in scheduler.get_last_lr()])
        found.append((seen, numbers_of(scheduler.state_dict())))
    assert found[0] == found[1]


def numbers_of(state: Any) -> Any:
    """A state dict whose tensors are numbers; functions by their kind."""
    if isinstance(state, dict):
        return {key: numbers_of(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [numbers_of(value) for value in state]
    if isinstance(state, (torch.Tensor, own.Tensor)):
        return float(state)
    return "function" if callable(state) else state


@pytest.mark.parametrize("case", [c for c in SCHEDULERS if c[0] != "ReduceLROnPlateau"], ids=name_of)
def test_schedulers_go_on(case: Case) -> None:
    optimizer, scheduler = make_scheduler(own, case)
    for _ in range(STEPS // 5):
        optimizer.step()
        scheduler.step()
    again, other = make_scheduler(own, case)
    again.load_state_dict(optimizer.state_dict())
    other.load_state_dict(scheduler.state_dict())
    for _ in range(STEPS // 5):
        for o, s in ((optimizer, scheduler), (again, other)):
            o.step()
            s.step()
        assert scheduler.get_last_lr() == other.get_last_lr()


ERRORS: list[tuple[str, Any]] = [
    ("lr", lambda t, p: t.optim.Adam(p, lr=-1)),
    ("betas", lambda t, p: t.optim.Adam(p, betas=(1.0, 0.9))),
    ("mixed betas", lambda t, p: t.optim.Adam(p, betas=(t.tensor(0.9), 0.9))),
    ("eps", lambda t, p: t.optim.NAdam(p, eps=-1)),
    ("decay", lambda t, p: t.optim.RMSprop(p, weight_decay=-1)),
    ("rho", lambda t, p: t.optim.Adadelta(p, rho=2)),
    ("etas", lambda t, p: t.optim.Rprop(p, etas=(2, 3))),
    ("nesterov", lambda t, p: t.optim.SGD(p, nesterov=True)),
    ("fused", lambda t, p: t.optim.Adam(p, fused=True, foreach=True)),
    ("differentiable", lambda t, p: t.optim.SGD(p, fused=True, differentiable=True)),
    ("empty", lambda t, p: t.optim.SGD([])),
    ("a tensor", lambda t, p: t.optim.SGD(p[0])),
    ("a set", lambda t, p: t.optim.SGD([{"params": set(p)}])),
    ("no tensor", lambda t, p: t.optim.SGD([1])),
    ("no leaf", lambda t, p: t.optim.SGD([p[0] * 2])),
    ("twice", lambda t, p: t.optim.SGD([{"params": p}, {"params": p}])),
    ("names", lambda t, p: t.optim.SGD([("a", p[0]), p[1]])),
    ("groups", lambda t, p: t.optim.LBFGS([{"params": p[:1]}, {"params": p[1:]}])),
    ("another state", lambda t, p: t.optim.SGD(p).load_state_dict(t.optim.SGD(p[:1]).state_dict())),
    ("more groups", lambda t, p: t.optim.SGD([{"params": p[:1]}, {"params": p[1:]}]).load_state_dict(t.optim.SGD(p).state_dict())),
    ("muon", lambda t, p: t.optim.Muon(p)),
    ("adafactor", lambda t, p: t.optim.Adafactor(p, d=0.5)),
    ("asgd", lambda t, p: t.optim.ASGD(p, lr=t.zeros(2))),
    ("sparse adam", lambda t, p: t.optim.SparseAdam(p, lr=0)),
    ("cycle", lambda t, p: t.optim.lr_scheduler.CyclicLR(t.optim.Adagrad(p), 0.1, 0.2)),
    ("one cycle", lambda t, p: t.optim.lr_scheduler.OneCycleLR(t.optim.SGD(p), 0.1)),
    ("milestones", lambda t, p: t.optim.lr_scheduler.SequentialLR(o := t.optim.SGD(p), [t.optim.lr_scheduler.StepLR(o, 2)], [1])),
    ("resumed", lambda t, p: t.optim.lr_scheduler.StepLR(t.optim.SGD(p), 2, last_epoch=3)),
    ("no optimizer", lambda t, p: t.optim.lr_scheduler.StepLR(3, 2)),
    ("lists", lambda t, p: t._foreach_add(p, p[:1])),
]


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in ERRORS])
def test_errors(make: Any) -> None:
    said = []
    for library in (torch, own):
        params = [library.ones(2, requires_grad=True), library.ones(3, requires_grad=True)]
        with pytest.raises(Exception) as caught:
            make(library, params)
        said.append((type(caught.value), str(caught.value)))
    assert said[0] == said[1]
