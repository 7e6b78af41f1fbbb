"""Products of tensors: the same bits eagerly and compiled, for any batch; and the switch that says what multiplies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch

functional: Any = torch.nn.functional


def draw(*shape: int, dtype: Any = torch.float32) -> Any:
    rng = np.random.default_rng([*shape])
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(dtype)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return dg.compile(function, fullgraph=True, mode="max")


def same(a: Any, b: Any) -> bool:
    return a.dtype is b.dtype and a.shape == b.shape and bool((a == b).all())


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "mm": (torch.mm, [(33, 300), (300, 17)]),
    "of a transposed": (lambda x, y: x @ y.T, [(33, 300), (17, 300)]),
    "mv": (torch.mv, [(33, 300), (300,)]),
    "a vector by a matrix": (lambda x, y: x @ y, [(300,), (300, 40)]),
    "bmm": (torch.bmm, [(3, 8, 30), (3, 30, 5)]),
    "broadcast": (lambda x, y: x @ y, [(2, 1, 8, 30), (3, 30, 5)]),
    "many rows": (lambda x, y: x @ y, [(2, 4, 30), (30, 5)]),
    "linear": (functional.linear, [(4, 9, 70), (12, 70), (12,)]),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), [(3, 8, 30), (3, 5, 30)]),
    "reversed": (lambda x, y: torch.flip(x, (0,)) @ y[::2], [(6, 10), (20, 8)]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_compiled_products_have_the_bits_of_eager_ones(name, dtype) -> None:
    function, shapes = CASES[name]
    operands = [draw(*shape, dtype=dtype) for shape in shapes]
    assert same(compiled(function)(*operands), function(*operands))


@pytest.mark.parametrize("name", ["mm", "mv", "bmm", "linear", "many rows"])
def test_gradients_have_the_bits_of_eager_ones(name) -> None:
    function, shapes = CASES[name]

    def gradients(*operands: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in operands]
        result = function(*leaves)
        (result * result).sum().backward()
        return [x.grad for x in leaves]

    operands = [draw(*shape) for shape in shapes]
    for found, expected in zip(compiled(gradients)(*operands), gradients(*operands)):
        assert same(found, expected)


def test_a_row_does_not_depend_on_its_batch() -> None:
    x, w = draw(70, 300), draw(40, 300)
    whole = functional.linear(x, w)
    for k in (0, 5, 69):
        assert same(functional.linear(x[k], w), whole[k])
        assert same(functional.linear(x[k : k + 1], w), whole[k : k + 1])
    assert same(torch.stack([x, x]) @ w.T, torch.stack([whole, whole]))


def test_halves_are_rounded_once() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x, y = draw(20, 300, dtype=dtype), draw(300, 9, dtype=dtype)
        assert same(x @ y, (x.float() @ y.float()).to(dtype))


def test_the_switch() -> None:
    a, b = draw(40, 300).numpy(), draw(300, 50).numpy()
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    own, numpys = (x @ y).numpy(), a @ b
    assert (own != numpys).any()  # another order, by which the rest tells which is which
    np.testing.assert_allclose(own, numpys, atol=1e-4)
    assert (dg.compile(lambda a, b: a @ b, mode="max")(a, b) == numpys).all()
    with dg.config.override(products="own"):
        assert (dg.compile(lambda a, b: np.dot(a, b), mode="max")(a, b) == own).all()
        assert ((x @ y).numpy() == own).all()
    with dg.config.override(products="blas"):
        assert ((x @ y).numpy() == numpys).all()
        assert (compiled(lambda x, y: x @ y)(x, y).numpy() == numpys).all()
        p, q = x.half(), y.half()
        assert same(p @ q, (p.float() @ q.float()).half())
    with pytest.raises(dg.ConfigError, match=r"config\.products='mkl': expected one of auto, own, blas"):
        dg.config.products = "mkl"


def test_without_a_c_compiler() -> None:
    """The numpy backend multiplies as the C one does."""
    x, y = draw(33, 300), draw(300, 17)
    assert same(dg.compile(lambda x, y: torch.relu(x @ y), backend="numpy", mode="max")(x, y), torch.relu(x @ y))
