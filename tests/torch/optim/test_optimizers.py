"""What optimizers do apart from the numbers: states, hooks, options, tensors of all kinds."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.driver.background import WORK
from dynagraph.torch.optim import lbfgs, multi_tensor
from tests.torch.optim.cases import OPTIMIZERS, PER_ELEMENT, Case, advance, name_of, parameters
from tests.torch.optim.scenarios import cases_of_scenarios, check_same, id_of, outcome

FEW = [case for case in OPTIMIZERS if len(case[1]) > 1]


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x.detach().numpy(), y.detach().numpy(), equal_nan=True) for x, y in zip(a, b, strict=True))


def begun(case: Case, steps: int = 3) -> tuple[list[Any], list[Any], Any]:
    name, options = case
    params, targets = parameters(torch, name, "float32")
    optimizer = getattr(torch.optim, name)(params, **options)
    advance(torch, name, optimizer, params, targets, range(steps))
    return params, targets, optimizer


@pytest.mark.parametrize("case", FEW, ids=name_of)
def test_goes_on_from_its_state_dict_bit_for_bit(case: Case) -> None:
    name, _ = case
    params, targets, optimizer = begun(case)
    saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
    others = [p.detach().clone().requires_grad_() for p in params]
    other = getattr(torch.optim, name)(others)
    other.load_state_dict(saved)
    again = copy.deepcopy((others, other))
    advance(torch, name, optimizer, params, targets, range(3, 6))
    for theirs, theirs_too in ((others, other), again):
        advance(torch, name, theirs_too, theirs, targets, range(3, 6))
        assert same(params, theirs)


def test_pickled_with_its_parameters() -> None:
    params, _, optimizer = begun(("Adam", {"amsgrad": True}))
    other = pickle.loads(pickle.dumps(optimizer))
    assert list(other.state[other.param_groups[0]["params"][0]]) == ["step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
    for p, q in zip(params, other.param_groups[0]["params"]):
        q.grad = p.grad
    optimizer.step()
    other.step()
    assert same(params, other.param_groups[0]["params"])


@pytest.mark.parametrize("case", PER_ELEMENT, ids=name_of)
def test_recorded_steps_give_the_same_numbers(case: Case) -> None:
    """`differentiable`: by operations on tensors in place of kernels."""
    name, options = case
    rng = np.random.default_rng(0)
    start, grads = rng.normal(size=(2, 3)), rng.normal(size=(4, 2, 3))
    found = []
    for differentiable in (False, True):
        leaf = torch.tensor(start, requires_grad=True)
        param = leaf.clone() if differentiable else leaf.detach().clone().requires_grad_()
        if differentiable:
            param.retain_grad()
        optimizer = getattr(torch.optim, name)([param], **options, differentiable=differentiable)
        for grad in grads:
            param.grad = torch.tensor(grad)
            optimizer.step()
        found.append(param)
        if differentiable:
            param.sum().backward()
            assert leaf.grad is not None
            assert np.isfinite(leaf.grad.numpy()).all()
    np.testing.assert_allclose(found[1].detach().numpy(), found[0].detach().numpy(), rtol=1e-12)


def test_gradient_by_the_learning_rate() -> None:
    lr = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    param = torch.ones(3, dtype=torch.float64, requires_grad=True).clone()
    param.retain_grad()
    optimizer = torch.optim.SGD([param], lr=lr, differentiable=True)
    param.grad = torch.full((3,), 2.0, dtype=torch.float64)
    optimizer.step()
    param.sum().backward()
    assert lr.grad.item() == -6.0


def test_learning_rates_that_are_tensors() -> None:
    lr = torch.tensor(0.1)
    param = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.Adam([param], lr=lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    param.grad = torch.ones(2)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == pytest.approx(0.05)


@pytest.mark.parametrize("case", PER_ELEMENT, ids=name_of)
def test_complex_parameters_are_pairs(case: Case) -> None:
    name, options = case
    rng = np.random.default_rng(0)
    start, grads = rng.normal(size=(3, 2)), rng.normal(size=(3, 3, 2))
    pairs = torch.tensor(start, requires_grad=True)
    numbers = torch.view_as_complex(torch.tensor(start)).clone().requires_grad_()
    optimizers = [getattr(torch.optim, name)([p], **options) for p in (pairs, numbers)]
    for grad in grads:
        pairs.grad, numbers.grad = torch.tensor(grad), torch.view_as_complex(torch.tensor(grad))
        for optimizer in optimizers:
            optimizer.step()
    np.testing.assert_allclose(torch.view_as_real(numbers).detach().numpy(), pairs.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_computed_in_float32(dtype: str) -> None:
    kind = getattr(torch, dtype)
    halves, singles = torch.full((4,), 0.5, dtype=kind, requires_grad=True), torch.full((4,), 0.5, requires_grad=True)
    for param in (halves, singles):
        param.grad = torch.full((4,), 0.25, dtype=param.dtype)
        torch.optim.Adam([param], lr=0.1).step()
    assert halves.dtype is kind
    assert torch.equal(halves.float(), singles.to(kind).float())


def test_layouts() -> None:
    """Parameters whose memory is in another order, views with gaps, and one of no elements."""
    rng = np.random.default_rng(0)
    bases = [torch.tensor(rng.normal(size=(4, 6))) for _ in range(3)]
    params = [bases[0].T, bases[1][:, ::2], torch.zeros(0, 3, dtype=torch.float64), bases[2]]
    plain = [p.detach().clone().contiguous() for p in params]
    for some in (params, plain):
        for p in some:
            p.requires_grad_()
            p.grad = torch.ones(p.shape, dtype=torch.float64)
        optimizer = torch.optim.AdamW(some)
        for _ in range(3):
            optimizer.step()
    assert same(params, plain)


def test_parameters_in_the_same_memory() -> None:
    memory = torch.ones(4)
    params = [memory[:3].detach().requires_grad_(), memory[1:].detach().requires_grad_()]
    for p in params:
        p.grad = torch.ones(3)
    optimizer = torch.optim.SGD(params, lr=1.0)
    optimizer.step()
    assert memory.tolist() == [0.0, -1.0, -1.0, 0.0]


def test_parameters_step_by_their_own_counts() -> None:
    params = [torch.ones(3, requires_grad=True) for _ in range(2)]
    alone = torch.ones(3, requires_grad=True)
    optimizer, other = torch.optim.Adam(params, lr=0.1), torch.optim.Adam([alone], lr=0.1)
    for k in range(4):
        params[0].grad = torch.ones(3)
        params[1].grad = alone.grad = torch.ones(3) if k % 2 else None
        optimizer.step()
        other.step()
    assert [optimizer.state[p]["step"].item() for p in params] == [4.0, 2.0]
    assert same([alone], params[1:])


def test_writes_are_counted() -> None:
    w = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert w._version == 1


SPARSE = [("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adagrad", {"lr_decay": 0.1}), ("SparseAdam", {"maximize": True})]


@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_sparse_gradients(case: Case) -> None:
    name, options = case
    places, values = torch.tensor([[0, 2, 0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    param = torch.ones(4, 2, requires_grad=True)
    optimizer = getattr(torch.optim, name)([param], **options)
    dense = torch.ones(4, 2, requires_grad=True)
    other = getattr(torch.optim, name.removeprefix("Sparse"))([dense], **options)
    for _ in range(2):
        param.grad = torch.sparse_coo_tensor(places, values, (4, 2))
        dense.grad = param.grad.to_dense()
        optimizer.step()
        other.step()
    rows = [0, 2] if name == "SparseAdam" else [0, 1, 2, 3]
    np.testing.assert_allclose(param.detach().numpy()[rows], dense.detach().numpy()[rows], rtol=1e-6)
    assert (param.detach().numpy()[[1, 3]] == 1).all()


def test_sparse_gradients_are_refused() -> None:
    param = torch.ones(4, 2, requires_grad=True)
    param.grad = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1, 2), (4, 2))
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients, please consider SparseAdam instead"):
        torch.optim.Adam([param]).step()
    param.grad = torch.ones(4, 2)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
        torch.optim.SparseAdam([param]).step()


# -- the base --


def test_unused_state_is_not_made() -> None:
    _, _, optimizer = begun(("SGD", {}))
    assert dict(optimizer.state) == {}
    assert optimizer.state_dict()["state"] == {}


def test_groups() -> None:
    first, second = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([{"params": first, "lr": 0.5}], lr=0.1)
    optimizer.add_param_group({"params": [second]})
    for p in (first, second):
        p.grad = torch.ones(2)
    optimizer.step()
    assert first.tolist() == [0.5, 0.5]
    assert second.tolist() == pytest.approx([0.9, 0.9])
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        optimizer.add_param_group({"params": [first]})


def test_names() -> None:
    params = [("a", torch.ones(1, requires_grad=True)), ("b", torch.ones(1, requires_grad=True))]
    optimizer = torch.optim.SGD(params)
    assert optimizer.param_groups[0]["param_names"] == ["a", "b"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["a", "b"]
    with pytest.raises(ValueError, match="cannot add param group without names to the optimizer"):
        optimizer.add_param_group({"params": [torch.ones(1, requires_grad=True)]})


def test_zero_grad() -> None:
    param = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([param])
    param.grad = grad = torch.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert param.grad is grad
    assert grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert param.grad is None


def test_closures() -> None:
    param = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([param], lr=0.1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (param * param).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert param.tolist() == pytest.approx([0.8, 0.8])


def test_hooks() -> None:
    seen: list[Any] = []
    param = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([param])
    handles = [
        optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before")),
        optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after")),
        torch.optim.optimizer.register_optimizer_step_pre_hook(lambda o, args, kwargs: seen.append("before all")),
        torch.optim.optimizer.register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("after all")),
        optimizer.register_state_dict_pre_hook(lambda o: seen.append("saving")),
        optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1}),
        optimizer.register_load_state_dict_pre_hook(lambda o, state: seen.append("loading")),
        optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded")),
    ]
    optimizer.step()
    assert seen == ["before all", "before", "after", "after all"]
    state = optimizer.state_dict()
    assert state["more"] == 1
    optimizer.load_state_dict(state)
    assert seen[4:] == ["saving", "loading", "loaded"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(seen) == 7


def test_hooks_may_change_the_arguments() -> None:
    param = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([param])
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((args[0], lambda: 7), {}))
    assert optimizer.step() == 7
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple of"):
        optimizer.step()


def test_optimizers_of_users() -> None:
    class Signs(torch.optim.Optimizer):
        def __init__(self, params: Any, lr: float = 0.1):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["step"] = state.get("step", 0) + 1
                    p.sub_(p.grad.sign(), alpha=group["lr"])

    param = torch.ones(2, requires_grad=True)
    optimizer = Signs([param])
    seen: list[int] = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    param.grad = torch.tensor([2.0, -2.0])
    optimizer.step()
    assert param.tolist() == pytest.approx([0.9, 1.1])
    assert optimizer.state_dict()["state"] == {0: {"step": 1}}
    assert seen == [1]


def test_swapped_parameters() -> None:
    params, _, optimizer = begun(("Adam", {}))
    kept = [p.detach().clone() for p in params]
    others = {str(k): torch.ones_like(p) for k, p in enumerate(params)}
    for p in others.values():
        p.grad = torch.ones_like(p)
    with torch.optim.swap_in_optimizer_params_and_state(optimizer, others, copy.deepcopy(optimizer.state_dict())):
        optimizer.step()
    assert same(kept, params)
    assert optimizer.param_groups[0]["params"][0] is params[0]
    assert all((p != 1).all() for p in others.values())


def test_schedulers_warn_of_the_order() -> None:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    with pytest.warns(UserWarning, match=r"Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
        scheduler.step()


def test_gradients_by_a_grad_scaler() -> None:
    """What a GradScaler sets on optimizers that scale by themselves."""
    param = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([param], lr=0.5, fused=True)
    assert optimizer._step_supports_amp_scaling
    param.grad = torch.full((2,), 4.0)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(0.0)
    optimizer.step()
    assert param.tolist() == [0.5, 0.5]
    optimizer.found_inf = torch.tensor(1.0)
    optimizer.step()
    assert param.tolist() == [0.5, 0.5]


def test_fifty_steps_of_a_large_and_a_small_parameter() -> None:
    """Large parameters have a region of the thread pool each."""
    rng = np.random.default_rng(0)
    start = [rng.normal(size=n).astype(np.float32) for n in (1 << 17, 7, 1)]
    params = [torch.tensor(x, requires_grad=True) for x in start]
    optimizer = torch.optim.Adam(params, lr=0.1)
    for _ in range(3):
        for p in params:
            p.grad = p.detach().clone()
        optimizer.step()
    for x, p in zip(start, params):
        alone = torch.tensor(x[:7], requires_grad=True)
        other = torch.optim.Adam([alone], lr=0.1)
        for _ in range(3):
            alone.grad = alone.detach().clone()
            other.step()
        assert same([alone], [p[:7]])


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_later_steps_are_one_piece_of_work(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows, by one kernel that holds all of the formula."""
    left = []
    run_each = multi_tensor.run_each

    def seen(*args: Any) -> Any:
        left.append(run_each(*args))
        return left[-1]

    monkeypatch.setattr(multi_tensor, "run_each", seen)
    monkeypatch.setattr(multi_tensor, "_kernels", {})
    params = [torch.randn(4, 5).requires_grad_() for _ in range(3)]
    optimizer = make(params, lr=0.1)
    for _ in range(3):
        for p in params:
            p.grad = p.detach().clone()
        optimizer.step()
        WORK.wait()
    (kernel,) = multi_tensor.kernels().values()
    first, second, third = sum(map(len, left[:-2])), *map(len, left[-2:])  # rows that the kernel has left to Python
    assert (first, second, third) == (3, 0, 0) and not kernel.stats.breaks and kernel.stats.compiles == 1


def test_steps_in_parts_have_the_bits_of_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def stepped(part: int) -> bytes:
        monkeypatch.setattr(multi_tensor, "PART", part)
        param = torch.arange(13.0).sin().requires_grad_()
        optimizer = torch.optim.Adam([param], lr=0.1)
        for _ in range(2):
            param.grad = param.detach().cos()
            optimizer.step()
        return param.detach().numpy().tobytes()

    with dg.disable():
        assert stepped(5) == stepped(1 << 14)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("pair", [pair for pair in cases_of_scenarios() if pair[0][0] != "Muon"], ids=id_of)
def test_scenarios_do_not_make_much_of_a_rounding(pair: tuple[Case, str]) -> None:
    """Where they did, a comparison with PyTorch would fail for another order of additions; Muon's steps are in bfloat16."""
    check_same(outcome(torch, *pair, roundings=1), outcome(torch, *pair), 1e-8, 1e-8)


def test_searches_along_straight_lines_and_into_what_is_no_number() -> None:
    """Where the cubic polynomial's minimum is a quotient by 0, or NaN."""
    weight = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], line_search_fn="strong_wolfe", max_iter=1, max_eval=4)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = -weight.sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert weight.tolist() == [500.0, 500.0]  # each trial goes ten times as far
    start = lbfgs.Point(0.0, 1.0, torch.ones(1), -1.0)
    assert lbfgs.minimum_of_cubic(start, lbfgs.Point(4.0, float("inf"), torch.ones(1), float("inf"))) == 2.0


def test_libraries_interpolate_as_lbfgs_does() -> None:
    rising, falling = torch.tensor(0.5), torch.tensor(-1.0)
    for points in ((0.0, 1.0, falling, 1.0, 0.5, rising), (1.0, 0.5, rising, 0.0, 1.0, falling)):
        assert float(lbfgs._cubic_interpolate(*points)) == pytest.approx(0.8164966)
    assert float(lbfgs._cubic_interpolate(*points, bounds=(0.1, 0.2))) == 0.2
    assert float(lbfgs._cubic_interpolate(0.0, 0.0, torch.tensor(1.0), 1.0, 2.0, torch.tensor(1.0))) == 0.0


def by_tensors(grad: Any, changes: Any, steps: Any, inverses: Any, scale: Any, factors: Any) -> Any:
    q = grad.neg()
    for k in reversed(range(len(changes))):
        factors[k] = steps[k].dot(q) * inverses[k]
        q.sub_(changes[k] * factors[k])
    r = q.mul(scale)
    for k in range(len(changes)):
        r.add_(steps[k] * (factors[k] - changes[k].dot(r) * inverses[k]))
    return r


@pytest.mark.parametrize("n", [3, lbfgs.BLOCK, 2 * lbfgs.BLOCK + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [0, 4])
def test_directions_of_lbfgs_have_the_bits_of_operations_on_tensors(n: int, dtype: Any, count: int) -> None:
    torch.manual_seed(0)
    grad, *rows = ((torch.randn(n) / n**0.5).to(dtype) for _ in range(2 * count + 1))
    steps = rows[count:]
    changes = [row + step for row, step in zip(rows, steps)]
    inverses = [1.0 / change.dot(step) for change, step in zip(changes, steps)]
    results, factors = [], []
    for how in (lbfgs.two_loops, by_tensors):
        kept: list[Any] = [None] * 6
        results.append(how(grad, changes, steps, inverses, inverses[-1] if count else 1, kept))
        factors.append(kept)
    assert results[0].dtype == dtype and torch.equal(*results)
    assert kept[count:] == factors[0][count:] == [None] * (6 - count)
    for got, wanted in zip(factors[0][:count], kept):
        assert torch.equal(got, wanted) and got.dtype == dtype and got.shape == ()
