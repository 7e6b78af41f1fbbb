"""What PyTorch says of numbers that do not fit, empty sizes, integers and tensors without dimensions; found by its own samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.torch.nn import functional as F

f64, i64, u8 = torch.float64, torch.int64, torch.uint8


def values(found: Any) -> Any:
    return found.tolist() if isinstance(found, torch.Tensor) else [values(each) for each in found]


@pytest.mark.parametrize("make", [
    lambda: torch.tensor([300], dtype=u8), lambda: torch.tensor([[1, -200]], dtype=torch.int8),
    lambda: torch.tensor(-300, dtype=u8),
    lambda: torch.tensor(2**40, dtype=torch.int32), lambda: torch.tensor([1e20], dtype=i64), lambda: torch.tensor(300.7, dtype=u8),
    lambda: torch.tensor(float("nan"), dtype=torch.int32), lambda: torch.tensor([1, float("inf")], dtype=torch.int32),
    lambda: torch.full((2,), 300, dtype=u8), lambda: torch.full((2,), 1e6, dtype=torch.float16), lambda: torch.full((2,), 2**70),
    lambda: torch.full((2,), float("inf"), dtype=torch.int32), lambda: torch.full((2,), 1 + 2j, dtype=torch.float32),
    lambda: torch.full_like(torch.ones(2, dtype=u8), 300), lambda: torch.ones(2, dtype=u8).new_full((2,), -300),
    lambda: torch.scalar_tensor(300, dtype=torch.int8), lambda: torch.scalar_tensor(1e30, dtype=torch.int32),
])  # fmt: skip
def test_numbers_beyond_a_dtype_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"value cannot be converted to type .* without overflow"):
        make()


def test_numbers_that_fit_are_taken() -> None:
    assert values(torch.tensor([-5, 255], dtype=u8)) == [251, 255]
    assert values(torch.full((2,), -5, dtype=u8)) == [251, 251] and values(torch.scalar_tensor(-5, dtype=u8)) == 251
    assert values(torch.tensor([2.7, -2.7], dtype=torch.int8)) == [2, -2]
    assert values(torch.scalar_tensor(2.7, dtype=torch.int32)) == 2
    assert values(torch.tensor(np.array([300]), dtype=u8)) == [44]  # arrays are cast
    assert values(torch.full((1,), 2.5, dtype=torch.bool)) == [True] and values(torch.full((1,), True)) == [True]
    assert values(torch.tensor([1e50], dtype=torch.float32)) == [float("inf")]
    assert torch.scalar_tensor(3).dtype == torch.float32
    with pytest.raises(TypeError, match="must be real number, not complex"):
        torch.tensor(1 + 2j, dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, f64])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_infinity_is_infinity(approximate: str, dtype: torch.dtype) -> None:
    """For any number of elements; PyTorch's float32 kernel for vectors gives NaN, the one for single elements does not."""
    for n in (1, 3, 33):
        given = torch.full((n,), float("inf"), dtype=dtype)
        for function in (F.gelu, dg.compile(F.gelu, mode="max", backend="numpy", fullgraph=True)):
            assert torch.equal(function(given, approximate=approximate), given)
            assert function(-given, approximate=approximate).isnan().all()  # -inf * 0


INTS = torch.ones(2, 2, dtype=i64)


@pytest.mark.parametrize(("found", "wanted"), [
    (lambda: torch.addmm(INTS, INTS, INTS, alpha=0.6, beta=1.5), [[1, 1], [1, 1]]),
    (lambda: torch.addmv(INTS[0], INTS, INTS[0], alpha=2.6, beta=1.5), [5, 5]),
    (lambda: torch.addbmm(INTS, INTS[None], INTS[None], alpha=2.6, beta=-1.5), [[3, 3], [3, 3]]),
    (lambda: torch.baddbmm(INTS[None], INTS[None], INTS[None], alpha=2.6), [[[5, 5], [5, 5]]]),
    (lambda: torch.linspace(4.9, 10.9, 4, dtype=i64), [4, 6, 8, 10]),
    (lambda: torch.logspace(0.7, 3.7, 4, base=2.5, dtype=i64), [1, 2, 6, 15]),
    (lambda: torch.tensordot(torch.ones(1, 3, 1, dtype=u8), torch.ones(2, 1, 3, dtype=u8), dims=([0, 1], [0, 2])), [[6]]),
])  # fmt: skip
def test_integers_stay_integers(found: Callable[[], Any], wanted: Any) -> None:
    assert values(found()) == wanted and not found().is_floating_point()


def test_outer_products_of_integers_refuse_fractions() -> None:
    with pytest.raises(RuntimeError, match="argument alpha must not be a floating point number"):
        torch.addr(INTS, INTS[0], INTS[0], alpha=2.6)


EMPTY = [((5, 5, 0), (0, 5)), ((2, 3, 0), (0,)), ((0, 2, 3), (3, 5)), ((5, 0, 3), (3, 5)), ((2, 0, 3), (3,))]


@pytest.mark.parametrize(("a", "b"), EMPTY)
def test_products_of_empty_sizes(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = torch.ones(a, requires_grad=True), torch.ones(b, requires_grad=True)
    product = torch.matmul(x, y)
    assert product.shape == np.matmul(np.ones(a), np.ones(b)).shape and not product.any()
    product.sum().backward()
    assert x.grad.shape == a and y.grad.shape == b


def test_nothing_is_put_before_differences_of_order_0() -> None:
    assert torch.diff(torch.ones(5, 5), n=0, dim=0, prepend=torch.ones(1, 5)).shape == (5, 5)


def test_spacing_that_is_not_given() -> None:
    assert values(torch.gradient(torch.arange(5.0), spacing=None)) == [[1.0] * 5]


def test_borders_of_complex_numbers() -> None:
    x = torch.ones(2, dtype=torch.complex64)
    assert values(torch.constant_pad_nd(x, (1, 1), 1 + 2j)) == [1 + 2j, 1, 1, 1 + 2j]
    with pytest.raises(TypeError, match="must be float, not complex"):
        F.pad(x, (1, 1), value=1 + 2j)


def test_normalization_refuses_an_eps_that_divides_by_zero() -> None:
    with pytest.raises(ValueError, match=r"batch_norm eps must be positive during training, but got 0\.0"):
        torch.nn.BatchNorm1d(3, eps=0.0)(torch.ones(2, 3))
    with pytest.raises(ValueError, match="batch_norm eps must be non-negative, but got -1"):
        F.batch_norm(torch.ones(2, 3), torch.zeros(3), torch.ones(3), eps=-1)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grids_of_halves_give_halves(padding: str, mode: str) -> None:
    image, grid = torch.ones(1, 1, 3, 3, dtype=torch.bfloat16), torch.zeros(1, 2, 2, 2, dtype=torch.bfloat16)
    assert F.grid_sample(image, grid, mode, padding, align_corners=False).dtype is torch.bfloat16


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_what_is_not_included_has_no_gradient(reduce: str) -> None:
    x, source = (torch.tensor(v, dtype=f64, requires_grad=True) for v in (2.0, 3.0))
    found = torch.scatter_reduce(x, 0, torch.tensor(0), source, reduce, include_self=False)
    assert values(found) == 3.0 and values(torch.autograd.grad(found, (x, source))) == [0.0, 1.0]


def test_windows_at_random_places_of_a_single_image() -> None:
    image, places = torch.arange(4.0 * 7**3).reshape(4, 7, 7, 7), torch.rand(2, 4, 3)
    found = F.fractional_max_pool3d(image, 2, output_size=(4, 4, 4), _random_samples=places)
    assert torch.equal(found, F.fractional_max_pool3d(image[None], 2, output_size=(4, 4, 4), _random_samples=places[:1])[0])


def test_names_that_are_loaded_late_are_listed() -> None:
    names: dict[str, Any] = {}
    exec("from dynagraph.torch.nn import *", names)
    assert names["SyncBatchNorm"] is torch.nn.SyncBatchNorm and "SyncBatchNorm" in dir(torch.nn)
    assert "DistributedDataParallel" in dir(torch.nn.parallel)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_borders_of_no_width_are_copies(mode: str, compiled: bool) -> None:
    """They were the input itself, which writes to the result then changed."""
    pad = dg.compile(torch.nn.functional.pad) if compiled else torch.nn.functional.pad
    for n in (4, 5, 6):
        x = torch.ones(1, 6, n, requires_grad=True)
        y = pad(x, [0, 0], mode)
        y.detach().zero_()
        assert float(x.sum()) == 6 * n
        y.sum().backward()
        assert float(x.grad.sum()) == 6 * n


PLACES = torch.zeros(3, dtype=i64)


@pytest.mark.parametrize("use", [
    lambda x, p: x.__setitem__(slice(None), p),
    lambda x, p: x.__setitem__(PLACES == 0, p), lambda x, p: x.__setitem__(PLACES == 1, p),
    lambda x, p: x.to(p.dtype).index_put_((PLACES,), p), lambda x, p: x.add_(p), lambda x, p: p.view(1), lambda x, p: p.grad_fn,
])  # fmt: skip
@pytest.mark.parametrize("dtype", [i64, torch.float32])
def test_pieces_that_were_written_to_are_refused(use: Callable[[Any, Any], Any], dtype: torch.dtype) -> None:
    """Also as values that are cast, which was done first; the error names the piece."""
    given = torch.tensor([[0.5, 1.0, 0.0]], requires_grad=True)
    piece = given.unbind(1)[1]
    with torch.no_grad():
        given[0] = 2.0
    with pytest.raises(RuntimeError, match="Output 1 of Unbind is a view and its base or another view of its base has been"):
        use(torch.zeros(3, dtype=dtype), piece)
    part = torch.ones(4, requires_grad=True).sin().split(1)[2]
    with pytest.raises(RuntimeError, match="Output 2 of Split is a view and is being modified inplace"):
        part.mul_(2)
    with pytest.raises(RuntimeError, match="Output 0 of View is a view and is being modified inplace"):
        part.view(1, 1).mul_(2)


@pytest.mark.parametrize("key", [(slice(None),), (PLACES,), (PLACES == 0,)])
def test_values_that_do_not_fit_where_they_are_written(key: Any) -> None:
    with pytest.raises(RuntimeError, match=r"shape mismatch: value tensor of shape \[2, 3\] cannot be broadcast to indexing"):
        torch.zeros(3)[key] = torch.ones(2, 3)
