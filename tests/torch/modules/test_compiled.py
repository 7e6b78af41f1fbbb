"""Layers compiled against their plain calls, in training and evaluation; and layers pickled and copied."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.torch import nn
from dynagraph.torch.nn import utils
from dynagraph.torch.nn.utils import prune
from tests.torch.modules.layers import called, dtype_for, made
from tests.torch.table import Case, Inputs, families

ROWS = [
    pytest.param(case, id=f"{family}-{case}")
    for family, cases in families(package="tests.torch.modules").items()
    for case in cases
    if "layer" in case.options and not case.raises and case.option("compare", "close") == "close"
]


BREAKS = {  # layers that are captured in parts, and why
    "LinearCrossEntropyLoss(8, 3, options=LinearCrossEntropyOptions(True, batch_chunk_size=3), weight": "a mask chooses",
}


def arrays(value: Any) -> list[Any]:
    """All tensors of a nest as arrays, None for None."""
    if isinstance(value, torch.Tensor):
        return [value.detach().numpy()]
    return [None] if value is None else [a for item in value for a in arrays(item)] if isinstance(value, (tuple, list)) else []


def same(a: Any, b: Any) -> bool:
    if len(a) != len(b):
        return False
    for x, y in zip(a, b):
        if (x is None) != (y is None):
            return False
        if x is not None and not (x.dtype == y.dtype and np.allclose(x, y, rtol=1e-9, atol=1e-11, equal_nan=True)):
            return False
    return True


def ready(case: Case) -> tuple[Any, list[Any], list[Any]]:
    """The layer of a row, its inputs, and leaves that gradients are taken by."""
    text, train = case.options["layer"]
    inputs = Inputs(torch, case, "float64", case.option("grad", True) and "inplace=True" not in text)
    module = made(torch, text, dtype_for(torch, inputs.args), train)
    leaves = [x for x in (*inputs.leaves, *module.parameters()) if x.requires_grad]
    return module, inputs.args, leaves


@pytest.mark.sampled(24)
@pytest.mark.parametrize("case", ROWS)
def test_compiled_steps_do_what_plain_ones_do(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, own = ready(case), ready(case)
        compiled = dg.compile(lambda module, inputs, leaves: called(torch, module, inputs, leaves), backend="numpy", mode="max")
        for time in ("first", "second", "third"):
            expected, got = called(torch, *plain), compiled(*own)
            assert same(arrays(got), arrays(expected)), f"{time} call"
            assert same(arrays(list(own[0].buffers())), arrays(list(plain[0].buffers()))), f"buffers after the {time} call"
    assert not compiled.stats.fallbacks, compiled.stats.last_error
    known = next((why for name, why in BREAKS.items() if case.options["layer"][0].startswith(name)), None)
    assert any(known in text for text in compiled.stats.breaks) if known else not compiled.stats.breaks


def sets_an_attribute() -> Any:
    class Remembers(nn.Linear):
        def forward(self, input: Any) -> Any:
            self.last = super().forward(input)
            return self.last * 2

    return Remembers(3, 3)


CHANGED = {
    "weight norm": lambda: utils.parametrizations.weight_norm(nn.Linear(3, 4)),
    "spectral norm": lambda: utils.parametrizations.spectral_norm(nn.Linear(3, 4)),
    "orthogonal": lambda: utils.parametrizations.orthogonal(nn.Linear(3, 4), use_trivialization=False),
    "older weight norm": lambda: utils.weight_norm(nn.Linear(3, 4)),
    "older spectral norm": lambda: utils.spectral_norm(nn.Linear(3, 4)),
    "pruned": lambda: prune.l1_unstructured(nn.Linear(3, 4), "weight", 3),
    "average of all batches": lambda: nn.BatchNorm1d(3, momentum=None),
    "attribute": sets_an_attribute,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CHANGED)
def test_compiled_steps_of_modules_that_change(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = []
        for _ in range(2):
            torch.manual_seed(1)
            found.append(CHANGED[name]().double())
        x = torch.randn(5, 3, dtype=torch.float64)
        compiled = dg.compile(lambda module, inputs, leaves: called(torch, module, inputs, leaves), backend="numpy", mode="max")
        for _ in range(3):
            plain, own = ((module, [x], list(module.parameters())) for module in found)
            assert same(arrays(compiled(*own)), arrays(called(torch, *plain)))
            assert same(arrays(list(own[0].buffers())), arrays(list(plain[0].buffers())))
    assert not compiled.stats.breaks and not compiled.stats.fallbacks


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", ROWS)
def test_copies(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, inputs, _ = ready(case)
        copies = [copy.deepcopy(module)]
        if "lambda" not in case.name:
            copies.append(pickle.loads(pickle.dumps(module)))
        expected = arrays(module(*inputs))
        for each in copies:
            assert repr(each) == repr(module)
            assert list(each.state_dict()) == list(module.state_dict())
            assert all(a is not b for a, b in zip(each.parameters(), module.parameters()))
            _, again, _ = ready(case)
            assert same(arrays(each(*again)), expected)


@pytest.mark.parametrize("make", ["lazy", "pruned", "weight norm", "spectral norm"])
def test_modules_without_their_hooks_are_called_plainly_again(make: str) -> None:
    x = torch.ones(2, 3)
    layer = nn.LazyLinear(4) if make == "lazy" else nn.Linear(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if make == "pruned":
            prune.remove(prune.l1_unstructured(layer, "weight", 2), "weight")
        elif make == "weight norm":
            utils.remove_weight_norm(utils.weight_norm(layer))
        elif make == "spectral norm":
            utils.remove_spectral_norm(utils.spectral_norm(layer))
    layer(x)
    assert layer._hooks is None


def adaptive() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    layer = nn.AdaptiveLogSoftmaxWithLoss(32, 40, [5, 10, 20], div_value=2).double()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        output, loss = layer(x, target.reshape(-1))
        loss.backward()
        optimizer.step()
        return output, loss

    return layer, optimizer, step


@pytest.mark.parametrize("empty", [False, True])
def test_steps_of_an_adaptive_softmax_are_one_program(empty: bool) -> None:
    """Where a cluster has no sample, its parameters have no gradients and keep their momenta: such a batch is left to Python."""
    (layer, _, step), (other, _, plain) = adaptive(), adaptive()
    compiled, rng = dg.compile(step, backend="numpy", mode="max", fullgraph=True), np.random.default_rng(0)
    for k in range(6):
        x = torch.tensor(rng.normal(size=(12, 32)))
        target = torch.tensor(rng.permutation([*range(10), 35, 37] if empty and k % 3 == 0 else [*range(6), 9, 12, 18, 25, 30, 39]))
        with torch.no_grad():
            x[0] = float("nan") if k == 5 else 0.5
        got, wanted = compiled(x, target.reshape(3, 4)), plain(x, target)
        assert same(arrays(got), arrays(wanted))
        grads = [[p.grad for p in module.parameters()] for module in (layer, other)]
        assert same(arrays(grads[0]), arrays(grads[1])) and any(g is None for g in grads[0]) == bool(empty and k % 3 == 0)
        assert same(arrays(list(layer.parameters())), arrays(list(other.parameters())))
    assert compiled.counters()["misses"] <= 2 and compiled.counters()["refusals"] == int(empty)  # one captures
    assert not compiled.stats.breaks and not compiled.stats.fallbacks
    predicted = dg.compile(lambda x: (layer.predict(x), layer.log_prob(x)), backend="numpy", mode="max", fullgraph=True)
    x = torch.tensor(rng.normal(size=(12, 32)) * 20)
    assert same(arrays(predicted(x)), arrays((other.predict(x), other.log_prob(x))))


def test_targets_of_an_adaptive_softmax_are_checked_in_programs() -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [3, 7], div_value=2)
    compiled = dg.compile(lambda x, target: layer(x, target).loss, backend="numpy", mode="max", fullgraph=True)
    with torch.no_grad():
        assert compiled(torch.ones(3, 8), torch.tensor([0, 4, 9])).shape == ()
    for wrong in ([0, 4, 20], [-1, 4, 9]):
        with pytest.raises(RuntimeError, match=r"Target values should be in \[0, 19\], but values in range \[.*\] were found"):
            compiled(torch.ones(3, 8), torch.tensor(wrong))


def test_clusters_of_many_classes_are_computed_for_their_own_samples_only() -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20_000, [3, 7], div_value=2)
    compiled = dg.compile(lambda x, target: layer(x, target), backend="numpy", mode="max")
    x, target = torch.ones(64, 8), torch.arange(64)
    assert same(arrays(compiled(x, target)), arrays(layer(x, target)))
    assert len(compiled.stats.breaks) == 1


CHANGING: dict[str, Any] = {  # a layer, and inputs of a size
    "BatchNorm1d": lambda: (nn.BatchNorm1d(4), lambda n: torch.randn(n, 4)),
    "BatchNorm2d": lambda: (nn.BatchNorm2d(4), lambda n: torch.randn(n, 4, 2, 3)),
    "BatchNorm1d, average": lambda: (nn.BatchNorm1d(4, momentum=None), lambda n: torch.randn(n, 4, 2)),
    "InstanceNorm1d": lambda: (nn.InstanceNorm1d(4, track_running_stats=True), lambda n: torch.randn(n, 4, 5)),
    "InstanceNorm1d, lengths": lambda: (nn.InstanceNorm1d(4, track_running_stats=True), lambda n: torch.randn(3, 4, n)),
    "probabilities": lambda: (lambda x: nn.functional.cross_entropy(x, x.softmax(1)), lambda n: torch.randn(n, 4)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CHANGING)
def test_batches_of_all_sizes_are_two_programs(name: str, dtype: Any) -> None:
    """The second one, at the first other size, is for all; the unbiased variance's factor is computed in it."""
    torch.manual_seed(1)
    (layer, make), (other, _) = CHANGING[name](), CHANGING[name]()
    if isinstance(layer, nn.Module):
        layer, other = layer.to(dtype), other.to(dtype)
    compiled = dg.compile(lambda x: layer(x), backend="numpy", mode="max", fullgraph=True)
    for n in (6, 8, 5, 9, 12, 7):
        x = make(n).to(dtype)
        got, expected = compiled(x), other(x)
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
        for mine, wanted in zip(getattr(layer, "buffers", list)(), getattr(other, "buffers", list)(), strict=True):
            assert mine.dtype == wanted.dtype
            np.testing.assert_allclose(mine.numpy(), wanted.numpy(), rtol=1e-6 if dtype is torch.float32 else 1e-14)
    assert compiled.counters()["misses"] == 2 and not compiled.stats.fallbacks
