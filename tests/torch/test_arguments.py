"""How arguments may be given: numbers as tensors and NumPy's integers, and the order that PyTorch had first."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as own
from dynagraph.torch.functions import numbers_first

theirs = pytest.importorskip("torch")


def _x(t: Any) -> Any:
    return t.arange(24.0).view(4, 6)


def _image(t: Any) -> Any:
    return t.arange(32.0).view(1, 2, 4, 4)


INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "one_hot": lambda t, n: t.nn.functional.one_hot(t.arange(4), n(5)),
    "split": lambda t, n: t.cat(_x(t).split(n(3))[:1]),
    "chunk": lambda t, n: _x(t).chunk(n(2))[1],
    "tensor_split": lambda t, n: t.tensor_split(_x(t), n(2))[1],
    "roll": lambda t, n: _x(t).roll(n(1), n(0)),
    "roll, several": lambda t, n: _x(t).roll((n(1), n(2)), (n(0), n(1))),
    "flip": lambda t, n: _x(t).flip(n(1)),
    "sum": lambda t, n: _x(t).sum(n(1)),
    "std": lambda t, n: _x(t).std(n(1)),
    "squeeze": lambda t, n: _x(t)[None].squeeze(n(0)),
    "movedim": lambda t, n: _x(t).movedim(n(0), n(1)),
    "linspace": lambda t, n: t.linspace(0, 1, n(5)),
    "logspace": lambda t, n: t.logspace(0, 1, n(3)),
    "randperm": lambda t, n: t.randperm(n(4)).sort().values,
    "full": lambda t, n: t.full((n(2),), n(3)),
    "avg_pool2d": lambda t, n: t.nn.functional.avg_pool2d(_image(t), n(2)),
    "max_pool2d": lambda t, n: t.nn.functional.max_pool2d(_image(t), n(2), n(1)),
    "conv2d": lambda t, n: t.nn.functional.conv2d(_image(t), t.ones(1, 2, 2, 2), padding=n(1), stride=n(2)),
    "hann_window": lambda t, n: t.hann_window(n(4)),
    "stft": lambda t, n: t.stft(t.arange(16.0), n(8), hop_length=n(4), window=t.ones(8), return_complex=True).real,
    "cross_entropy": lambda t, n: t.nn.functional.cross_entropy(_x(t), t.arange(4), ignore_index=n(1)),
}
TAKES_NO_NUMPY = ("split",)  # PyTorch's


@pytest.mark.parametrize("kind", ["a tensor", "NumPy's"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_as_tensors_and_numpys(name: str, kind: str) -> None:
    call = INTEGERS[name]
    found = call(own, own.tensor if kind == "a tensor" else np.int64)
    given: Any = theirs.tensor if kind == "a tensor" else int if name in TAKES_NO_NUMPY else np.int64
    wanted = call(theirs, given)
    assert str(found.dtype) == str(wanted.dtype)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6)


def test_fills_of_numpys_small_integers_are_int64() -> None:
    assert own.full((2,), np.int32(3)).dtype is own.int64 and theirs.full((2,), np.int32(3)).dtype is theirs.int64


# -- numbers first ----------------------------------------------------------------------------------------------------

Call = Callable[[Any, Callable[[Any], Any]], Any]


def _operands(t: Any, shape: tuple[int, ...]) -> Any:
    return t.from_numpy(np.random.default_rng(len(shape)).normal(size=shape))


def _case(name: str, first: Any, *others: Any) -> Call:
    """``x.name(*others)`` where texts like "3x4" are tensors."""

    def call(t: Any, method: Callable[[Any], Any]) -> Any:
        made = [_operands(t, tuple(map(int, o.split("x")))) if isinstance(o, str) else o for o in (first, *others)]
        return method(made)

    call.__name__ = name
    return call


ROWS: list[tuple[str, Any]] = [
    ("add", ("2x3", 0.5, "2x3")), ("sub", ("2x3", 0.5, "2x3")), ("add", ("2x3", 2, "3")), ("addcmul", ("2x3", 0.5, "2x3", "2x3")),
    ("addcdiv", ("2x3", -0.5, "2x3", "2x3")), ("addmm", ("2x4", 0.5, "2x3", "3x4")), ("addmm", ("2x4", 0.5, 0.25, "2x3", "3x4")),
    ("addmv", ("2", 0.5, "2x3", "3")), ("addmv", ("2", 0.5, 0.25, "2x3", "3")), ("addr", ("2x3", 0.5, "2", "3")),
    ("addr", ("2x3", 0.5, 2.0, "2", "3")), ("baddbmm", ("2x2x4", 0.5, "2x2x3", "2x3x4")),
    ("baddbmm", ("2x2x4", 0.5, 2.0, "2x2x3", "2x3x4")), ("addbmm", ("2x4", 0.5, 2.0, "2x2x3", "2x3x4")),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:This overload of")
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("in_place", [False, True], ids=["new", "in place"])
@pytest.mark.parametrize("name,given", ROWS, ids=[f"{name} {len(given)}" for name, given in ROWS])
def test_numbers_may_come_first(name: str, given: Any, in_place: bool, compiled: bool) -> None:
    def of(t: Any) -> Any:
        method = name + "_" * in_place
        return lambda made: getattr(made[0].clone(), method)(*made[1:])

    call = _case(name, *given)
    mine = dg.compile(of(own), mode="max") if compiled else of(own)
    found, wanted = call(own, mine), call(theirs, of(theirs))
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:This overload of")
def test_functions_take_numbers_first() -> None:
    def results(t: Any) -> list[Any]:
        a, b, c = (_operands(t, s) for s in ((2, 2), (2, 3), (3, 2)))
        out = t.empty(2, 2).double()
        return [t.addmm(0.5, a, 0.25, b, c), t.addmm(0.5, a, b, c), t.add(a, 2.0, 3.0), t.add(a, 0.5, a, out=out)]

    for found, wanted in zip(results(own), results(theirs), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)


def test_gradients_pass_where_numbers_come_first() -> None:
    def gradients(t: Any) -> list[Any]:
        x, y = (_operands(t, s).requires_grad_() for s in ((2, 3), (2, 3)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x.add(0.5, y).addcmul(2.0, x, y).sum().backward()
        return [x.grad.numpy(), y.grad.numpy()]

    for found, wanted in zip(gradients(own), gradients(theirs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_numbers_first_warn_once_as_pytorch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers_first, "_warned", [])
    x = own.ones(2)
    with pytest.warns(UserWarning, match=r"This overload of add is deprecated:\n\tadd\(Number alpha, Tensor other\)\nConsider"):
        x.add(0.5, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x.add(0.5, x)


def test_what_is_no_order_of_arguments_is_refused() -> None:
    x = own.ones(2)
    with pytest.raises(TypeError, match=r"add\(\) takes 2 positional arguments but 3 were given"):
        x.add(x, 0.5)
    with pytest.raises(TypeError, match=r"addcmul\(\) takes 3 positional arguments but 4 were given"):
        x.addcmul(x, x, 0.5)
    with pytest.raises(TypeError, match=r"addmm\(\) takes 3 positional arguments but 4 were given"):
        x.addmm(x, x, x)
