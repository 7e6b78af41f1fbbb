"""``__torch_function__``: what functions, methods, operators and properties ask, as PyTorch's do; plainly and in programs."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from typing import Any

import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.torch.functions.common import NAMESPACES
from tests.torch.overriding_programs import PROGRAMS, outcome


@functools.cache
def of_pytorch() -> dict[str, Any]:
    """What PyTorch itself says, in a process of its own: others may want to be the only torch."""
    code = (
        "import torch; from tests.torch.overriding_programs import PROGRAMS, outcome; "
        "print({name: outcome(torch, name) for name in PROGRAMS})"
    )
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    return eval(found.stdout, {"nan": float("nan")}) if found.returncode == 0 else {}


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_torch(name: str) -> None:
    (theirs, asked_there), (ours, asked_here) = of_pytorch()[name], outcome(torch, name)
    assert rounded(ours) == rounded(theirs)
    assert asked_here == asked_there


def rounded(value: Any) -> Any:
    if isinstance(value, (float, complex)):
        return round(value.real, 5), round(value.imag, 5)
    return [rounded(each) for each in value] if isinstance(value, (list, tuple)) else value


class Sub(torch.Tensor):
    pass


class Doubled(torch.Tensor):
    """Sums are twice what they are."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs or {})
        return found * 2 if func is torch.add else found


class Held:
    def __init__(self, tensor: Any):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return Held(func(*[a.tensor if isinstance(a, Held) else a for a in args], **(kwargs or {})))


def trained(x: Any) -> Any:
    w = torch.ones(3, requires_grad=True)
    loss = torch.nn.functional.softplus(x * w).sum()
    loss.backward()
    return loss.detach(), w.grad


COMPILED: dict[str, Any] = {
    "operators": (lambda x: torch.relu(x) * 2 + x.sum() - x[0], Sub),
    "what a class makes of it": (lambda x: torch.add(x, 1) + x.shape[0], Doubled),
    "other objects": (lambda x: torch.add(x, 1).tensor, Held),
    "made within": (lambda x: (x.as_subclass(Doubled).exp(), torch.add(x.as_subclass(Doubled), x)), lambda x: x),
    "layers": (torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), Sub),
    "a step": (trained, Sub),
    "plain tensors": (lambda x: torch.relu(x) + torch.nn.functional.gelu(x), lambda x: x),
}


def as_subclass(kind: Any) -> Any:
    x = torch.tensor([1.0, -2.0, 3.0])
    return x.as_subclass(kind) if isinstance(kind, type) and issubclass(kind, torch.Tensor) else kind(x)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    function, kind = COMPILED[name]
    compiled = dg.compile(function, mode="max", backend="numpy", fullgraph=True)
    for _ in range(3):
        found, expected = (run(as_subclass(kind)) for run in (compiled, function))
        several = [(found, expected)] if isinstance(found, torch.Tensor) else list(zip(found, expected, strict=True))
        for ours, theirs in several:
            assert type(ours) is type(theirs) and ours.tolist() == theirs.tolist()
    assert compiled.stats.compiles == 1 and compiled.stats.fallbacks == 0


def test_programs_are_guarded_by_the_class() -> None:
    compiled = dg.compile(lambda x: torch.add(x, 1), mode="max", backend="numpy")
    for kind in (Sub, Doubled, Sub, Doubled):
        found = compiled(as_subclass(kind))
        assert type(found) is kind and found.tolist() == [2 * k if kind is Doubled else k for k in (2.0, -1.0, 4.0)]


def test_programs_are_guarded_by_whether_classes_are_asked() -> None:
    compiled = dg.compile(lambda x: x + 1, mode="max", backend="numpy")
    for _ in range(2):
        assert type(compiled(as_subclass(Sub))) is Sub
        with torch._C.DisableTorchFunctionSubclass():
            assert type(compiled(as_subclass(Sub))) is torch.Tensor


def test_functions_are_the_same_whether_they_ask_or_not() -> None:
    """A table that was made before the first class that is asked serves after it."""
    relu = NAMESPACES["torch"]["relu"]
    assert {relu: 1}.get(torch.relu) == 1 and torch.relu == relu and torch.relu.__name__ == "relu"


def test_what_nobody_implements_raises() -> None:
    class Silent:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'torch.mul'; all __torch_function__ handlers returned"):
        torch.mul(Silent(), 1)


def test_parameters_and_sparse_tensors_are_not_asked() -> None:
    class Own(torch.nn.Parameter):
        pass

    assert type(Own(torch.ones(2)) + 1) is torch.Tensor
    assert type(torch.nn.Buffer(torch.ones(2)) * 2) is torch.Tensor
    assert not torch.overrides.has_torch_function((torch.ones(2).to_sparse(), torch.nn.Parameter(torch.ones(1))))
