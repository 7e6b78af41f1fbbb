"""nn.parallel: the same numbers on several devices as on one.  Devices are those that names say: copies on the CPU."""

from __future__ import annotations

import threading
from collections import namedtuple
from typing import Any

import pytest

from dynagraph import torch
from dynagraph.torch import nn
from dynagraph.torch.nn import parallel

CPUS = ["cpu", torch.device("cpu", 1), "cpu:2"]
Pair = namedtuple("Pair", "x y")


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_values_and_gradients_are_those_of_one_device(n: int) -> None:
    one, other = model(), model()
    x = torch.linspace(-1, 1, 21, dtype=torch.float64).reshape(7, 3)
    many = nn.DataParallel(other, device_ids=CPUS[:n])
    for _ in range(2):
        expected, found = one(x), many(x)
        assert torch.allclose(found, expected, rtol=0, atol=1e-15)
        expected.square().sum().backward()
        found.square().sum().backward()
    for a, b in zip(one.parameters(), other.parameters()):
        assert torch.allclose(a.grad, b.grad, rtol=1e-12)
    assert list(many.state_dict()) == [f"module.{name}" for name in one.state_dict()]
    with torch.no_grad():
        assert not many(x).requires_grad
    found = parallel.data_parallel(other, x, CPUS[:n])
    assert torch.allclose(found, expected, rtol=0, atol=1e-15)


def test_a_training_step() -> None:
    one, other = model(), model()
    x, target = torch.ones(6, 3, dtype=torch.float64), torch.zeros(6, 2, dtype=torch.float64)
    for each, call in ((one, one), (other, nn.DataParallel(other, CPUS))):
        optimizer = torch.optim.Adam(each.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.mse_loss(call(x), target).backward()
            optimizer.step()
    assert all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(one.parameters(), other.parameters()))


def test_nested_arguments_are_divided() -> None:
    x = torch.arange(5)
    first, second = parallel.scatter({"a": [x, "text"], "p": Pair(x * 2, (x, None))}, CPUS[:2])
    assert first["a"][0].tolist() == [0, 1, 2] and second["a"][0].tolist() == [3, 4] and second["a"][1] == "text"
    assert type(second["p"]) is Pair and second["p"].x.tolist() == [6, 8] and second["p"].y[1] is None
    assert parallel.scatter(torch.ones(2, 5), CPUS, dim=1)[2].shape == (2, 1)
    joined = parallel.gather([Pair(x, {"k": x}), Pair(x, {"k": x})], "cpu")
    assert type(joined) is Pair and joined.x.tolist() == [*range(5)] * 2 and joined.y["k"].shape == (10,)


class Named(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, *, scale: Any, unused: Any = None) -> Any:
        return {"y": x * scale, "total": (x * scale).sum()}


def test_keywords_and_scalars() -> None:
    many = nn.DataParallel(Named(), CPUS[:2])
    with pytest.warns(UserWarning, match="will instead unsqueeze and return a vector"):
        found = many(torch.ones(3, 2), scale=torch.tensor([[1.0], [2.0], [3.0]]))
        fewer = many(torch.ones(1, 2), scale=torch.full((1, 1), 2.0))  # rows than devices
    assert found["y"].tolist() == [[1, 1], [2, 2], [3, 3]] and found["total"].tolist() == [6, 6]
    assert fewer["y"].tolist() == [[2, 2]] and fewer["total"].tolist() == [4]


def test_buffers_of_the_first_copy_stay() -> None:
    many = nn.DataParallel(nn.BatchNorm1d(2), CPUS[:2])
    many(torch.tensor([[1.0, 2.0], [3.0, 4.0], [50.0, 60.0], [70.0, 80.0]]))
    assert many.module.running_mean.tolist() == pytest.approx([0.2, 0.3]) and many.module.num_batches_tracked.item() == 1


def test_moving_to_a_named_cpu_copies() -> None:
    x = torch.arange(6.0).reshape(2, 3).T
    moved = x.to("cpu:1")
    moved.fill_(0)
    assert x.sum().item() == 15 and moved.stride() == (1, 3) and x.to("cpu") is x


def test_tied_parameters() -> None:
    tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    tied[1].weight = tied[0].weight
    (first, second) = parallel.replicate(tied, CPUS[:2])
    assert first[0].weight is first[1].weight and second[0].weight is second[1].weight is not first[0].weight
    assert not list(first.parameters()) and first[0].weight.requires_grad
    nn.DataParallel(tied, CPUS[:2])(torch.ones(4, 2)).sum().backward()
    assert tied[0].weight.grad is not None


class Wrong(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        if x[0, 0] > 1:
            raise KeyError("no such row")
        return x


def test_an_error_says_which_copy() -> None:
    with pytest.raises(KeyError, match=r"Caught KeyError in replica 1 on device cpu:1\.\nOriginal Traceback(?s:.*)no such row"):
        nn.DataParallel(Wrong(), CPUS[:2])(torch.arange(4.0).reshape(4, 1))


def test_modes_reach_the_threads() -> None:
    seen = []

    class Asks(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            name = threading.current_thread().name
            seen.append((name, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
            return x

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        parallel.parallel_apply([Asks(), Asks()], [torch.ones(1), (torch.ones(1),)])
    assert sorted(seen) == [(f"replica {k}", False, True, torch.float16) for k in range(2)]
    with pytest.raises(AssertionError, match="The number of modules 1 is not equal to the number of inputs 2"):
        parallel.parallel_apply([Asks()], [1, 2])


def test_without_devices_the_module_is_called() -> None:
    linear = nn.Linear(2, 1)
    assert torch.equal(nn.DataParallel(linear, [])(torch.ones(1, 2)), linear(torch.ones(1, 2)))
