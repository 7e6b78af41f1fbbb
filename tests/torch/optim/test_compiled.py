"""Steps of optimizers in compiled functions: one program, without recompiling, equal to the plain steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.frontend.guards.sources import Item
from tests.torch.optim.cases import OPTIMIZERS, Case, name_of
from tests.torch.optim.scenarios import cases_of_scenarios, check_same, id_of, is_error, outcome

CASES = [case for case in OPTIMIZERS if case[0] != "LBFGS"]


def model(case: Case, dtype: Any) -> tuple[list[Any], Any, Callable[[], Any]]:
    rng = np.random.default_rng(0)
    shapes = [(4, 3), (3, 3)] if case[0] == "Muon" else [(4, 3), (3, 2), (2,), (3, 2), ()]
    params = [torch.tensor(rng.normal(size=shape), dtype=dtype, requires_grad=True) for shape in shapes]
    x = torch.tensor(rng.normal(size=(5, 4)), dtype=dtype)
    optimizer = getattr(torch.optim, case[0])(params, **case[1])

    def step() -> Any:
        optimizer.zero_grad()
        loss = ((x @ params[0]) @ params[1]).square().mean() + sum((p * p).sum() for p in params)
        loss.backward()
        optimizer.step()
        return loss

    return params, optimizer, step


@pytest.mark.sampled(20)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_training_step_is_one_program(case: Case) -> None:
    params, optimizer, step = model(case, torch.float64)
    others, other, plain = model(case, torch.float64)
    compiled = dg.compile(step, mode="max", fullgraph=True)
    for k in range(6):
        if k == 3:
            for group in (*optimizer.param_groups, *other.param_groups):
                group["lr"] *= 0.5
        assert compiled().item() == pytest.approx(plain().item(), rel=1e-12)
    for p, q in zip(params, others):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-12)
    expected, got = other.state_dict()["state"], optimizer.state_dict()["state"]
    for k, state in expected.items():
        for name, value in state.items():
            np.testing.assert_allclose(got[k][name].numpy(), value.numpy(), rtol=1e-6)
    counters = compiled.counters()
    # one more when the learning rate changes for the first time, and one where the first step makes the states of gradients
    assert counters["misses"] <= 2 + ("dampening" in case[1])
    assert counters["refusals"] == 0
    assert compiled.stats.breaks == {}


def test_counts_that_come_apart_leave_the_call_to_python() -> None:
    params = [torch.ones(3, requires_grad=True) for _ in range(2)]
    optimizer = torch.optim.Adam(params, lr=0.1)
    compiled = dg.compile(lambda: optimizer.step(), mode="max", fullgraph=True)
    for p in params:
        p.grad = torch.ones(3)
    compiled()
    optimizer.state[params[0]]["step"] += 5
    before = compiled.counters()["refusals"]
    compiled()
    assert compiled.counters()["refusals"] == before + 1
    assert [optimizer.state[p]["step"].item() for p in params] == [7.0, 2.0]


def test_a_new_state_is_a_new_program() -> None:
    param = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.Adam([param], lr=0.1)
    compiled = dg.compile(lambda: optimizer.step(), mode="max", fullgraph=True)
    param.grad = torch.ones(3)
    compiled()
    saved = optimizer.state_dict()
    saved["state"][0] = {name: value.clone() for name, value in saved["state"][0].items()}
    compiled()
    optimizer.load_state_dict(saved)
    compiled()
    assert optimizer.state[param]["step"].item() == 2.0
    del optimizer.state[param]
    compiled()
    assert optimizer.state[param]["step"].item() == 1.0


@pytest.mark.parametrize("first", [0, 2])
def test_first_steps_with_dampening(first: int) -> None:
    """Parameters have theirs at different times."""
    found = []
    for compiles in (True, False):
        params = [torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)]
        optimizer = torch.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1)
        step = dg.compile(lambda o=optimizer: o.step(), mode="max", fullgraph=True, backend="numpy") if compiles else optimizer.step
        for k in range(5):
            params[0].grad = torch.ones(3) * k
            params[1].grad = torch.ones(2) if k >= first else None
            step()
        found.append([*params[0].tolist(), *params[1].tolist()])
    assert found[0] == found[1]


def test_learning_rates_that_are_tensors_need_no_new_program() -> None:
    lr, param = torch.tensor(0.5), torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([param], lr=lr)
    compiled = dg.compile(lambda: optimizer.step(), mode="max", fullgraph=True)
    param.grad = torch.ones(3)
    for _ in range(3):
        compiled()
        lr.mul_(0.5)
    assert param.tolist() == [1 - 0.875] * 3
    assert compiled.counters()["misses"] == 1


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
def test_the_gradient_of_a_table_stays_sparse(name: str) -> None:
    """Its rows are as they were given, each as often; test_sparse_steps.py has the steps."""
    table = torch.nn.Embedding(6, 3, sparse=True)
    optimizer = getattr(torch.optim, name)(table.parameters(), lr=0.1)

    def step(numbers: Any) -> None:
        optimizer.zero_grad()
        table(numbers).square().sum().backward()
        optimizer.step()

    run = dg.compile(step, mode="max", backend="numpy", fullgraph=True)
    for k in range(4):
        run(torch.tensor([k, 1, k]))
        assert table.weight.grad._indices().tolist() == [[k, 1, k]] and not table.weight.grad.is_coalesced()


def test_hooks_of_all_optimizers_are_guarded() -> None:
    param = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([param], lr=0.5)
    compiled = dg.compile(lambda: optimizer.step(), mode="max")
    param.grad = torch.ones(3)
    compiled()
    seen: list[int] = []
    handle = torch.optim.optimizer.register_optimizer_step_pre_hook(lambda *_: seen.append(1))
    compiled()
    handle.remove()
    compiled()
    assert seen == [1]


def test_clipped_gradients() -> None:
    found = []
    for compiles in (True, False):
        params = [torch.ones(3, requires_grad=True), torch.full((2, 2), 2.0, requires_grad=True)]
        optimizer = torch.optim.SGD(params, lr=0.5)

        def step(params: Any = params, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            sum((p**3).sum() for p in params).backward()
            norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
            optimizer.step()
            return norm

        run = dg.compile(step, mode="max", fullgraph=True) if compiles else step
        found.append([run().item(), run().item(), params[1].tolist()])
    assert found[0][:2] == pytest.approx(found[1][:2], rel=1e-6)
    assert np.allclose(found[0][2], found[1][2], rtol=1e-6)


def test_a_guard_on_the_optimizer_itself_asks_for_no_states() -> None:
    """A kept program that is not for this optimizer leaves it alone."""
    param = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.Adam([param], lr=0.1)
    compiled = dg.compile(lambda: optimizer.step(), mode="max", backend="numpy")
    param.grad = torch.ones(3)
    compiled()
    (preparation,) = compiled.programs[0].captured.preparations
    assert preparation.makes(preparation.made) and preparation.makes(Item(preparation.made, 0))
    assert not preparation.makes(preparation.source)


def most_programs(case: Case, scenario: str) -> int:
    """Each set of parameters that have gradients is a program: four in that scenario.

    With dampening, the first step of a parameter is another formula, and there are first steps at two times.
    """
    return 5 if scenario != "some without gradients" else 4 + 2 * ("dampening" in case[1])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("pair", [pair for pair in cases_of_scenarios() if pair[0][0] != "LBFGS"], ids=id_of)
def test_scenarios(pair: tuple[Case, str]) -> None:
    """Fifty steps need a few programs: what changes from step to step makes no others."""
    compiled: list[Any] = []

    def wrap(step: Callable[..., Any]) -> Any:
        compiled.append(dg.compile(step, mode="max", backend="numpy"))
        return compiled[-1]

    got, plain = outcome(torch, *pair, wrap=wrap), outcome(torch, *pair)
    check_same(got, plain, 0.02 if pair[0][0] == "Muon" else 1e-9, 2e-2 if pair[0][0] == "Muon" else 1e-6)
    for function in compiled:
        assert is_error(got) or (function.counters()["misses"] <= most_programs(*pair) and not function.stats.fallbacks)
