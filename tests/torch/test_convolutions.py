"""Convolutions of tensors: kernels against products of windows, compiled steps against plain ones, and other dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.backends import toolchain
from dynagraph.torch.functions import convolution, embedding, indexing, pooling

F: Any = torch.nn.functional


def tensor(*shape: int, dtype: Any = torch.float64, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng([seed, *shape]).standard_normal(shape)).to(dtype)


def network(x: Any, first: Any, bias: Any, second: Any, scale: Any, shift: Any) -> Any:
    y = F.relu(F.conv2d(x, first, bias, stride=2, padding=1))
    y = F.max_pool2d(F.batch_norm(F.conv2d(y, second, padding="same", groups=2), None, None, scale, shift, True), 2)
    return F.conv_transpose2d(y, first, stride=2).tanh()


def operands(batch: int, dtype: Any) -> list[Any]:
    shapes = ((batch, 3, 12, 10), (4, 3, 3, 3), (4,), (4, 2, 2, 3), (4,), (4,))
    return [tensor(*s, dtype=dtype, seed=k) for k, s in enumerate(shapes)]


def step(*given: Any) -> list[Any]:
    leaves = [x.detach().requires_grad_() for x in given]
    y = network(*leaves)
    (y * y).sum().backward()
    return [y.detach(), *(x.grad for x in leaves)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_kernels_give_what_products_of_windows_give(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = step(*operands(3, dtype))
    for module in (convolution, pooling):
        monkeypatch.setattr(module, "_has_kernels", lambda *arrays: False)
    for one, want in zip(found, step(*operands(3, dtype))):
        assert one.dtype is dtype and one.shape == want.shape
        rtol = {torch.float64: 1e-11, torch.float32: 1e-3}.get(dtype, 0.1)
        np.testing.assert_allclose(one.double().numpy(), want.double().numpy(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_compiled_steps_give_the_bits_of_plain_ones(backend: str) -> None:
    """Of the first call, and of a program whose batch is symbolic."""

    def convolved(*given: Any) -> list[Any]:
        leaves = [x.detach().requires_grad_() for x in given]
        y = F.relu(F.conv2d(*leaves[:3], stride=2, padding=1))
        y = F.conv_transpose2d(F.conv2d(y, leaves[3], groups=2), leaves[1])
        y.backward(y.detach())
        return [y.detach(), *(x.grad for x in leaves)]

    compiled = dg.compile(convolved, fullgraph=True, mode="max", backend=backend)
    for batch in (2, 3, 4, 5):
        given = operands(batch, torch.float32)[:4]
        for found, want in zip(compiled(*given), convolved(*given)):
            assert (found == want).all()
    assert compiled.stats.compiles == 2


def test_gradients_of_gradients() -> None:
    x, w, bias = tensor(1, 2, 4, 4), tensor(2, 1, 2, 2), tensor(2)
    for leaf in (x, w, bias):
        leaf.requires_grad_()
    about = {"stride": (2, 1), "padding": 1, "dilation": (1, 2), "groups": 2}
    assert torch.autograd.gradcheck(lambda *a: F.conv2d(*a, **about), (x, w, bias))
    assert torch.autograd.gradgradcheck(lambda *a: F.conv2d(*a, **about), (x, w, bias))
    y = tensor(1, 2, 2, 2).requires_grad_()
    back = tensor(2).requires_grad_()
    about = {"stride": (2, 1), "padding": 1, "output_padding": (1, 0), "groups": 2}
    assert torch.autograd.gradcheck(lambda *a: F.conv_transpose2d(*a, **about), (y, w, back))
    assert torch.autograd.gradgradcheck(lambda *a: F.conv_transpose2d(*a, **about), (y, w, back))


def test_integers_and_complex_numbers() -> None:
    x, w = (torch.arange(n).reshape(*s) for n, s in ((24, (1, 2, 3, 4)), (8, (1, 2, 2, 2))))
    wanted = F.conv2d(x.double(), w.double())
    assert F.conv2d(x, w).equal(wanted.long())
    assert F.conv2d(x + 0j, w.cfloat() * 1j).imag.equal(wanted.float())


@pytest.mark.skipif(toolchain.find_compiler() is None, reason="there is no C compiler")
def test_gradients_of_three_dimensions_without_kernels_are_captured() -> None:
    x, w = (torch.randn(*s, dtype=torch.complex64).requires_grad_() for s in ((2, 4, 3, 3, 2), (4, 2, 2, 3, 2)))

    def step(x: Any, w: Any) -> Any:
        return torch.autograd.grad(F.conv3d(x, w, padding=1, groups=2).real.sum(), w)[0]

    torch.testing.assert_close(dg.compile(step, mode="max", fullgraph=True)(x, w), step(x, w))


def test_no_batch_and_empty_batches() -> None:
    w = tensor(5, 3, 3, 3)
    x = tensor(3, 6, 7)
    assert F.conv2d(x, w).equal(F.conv2d(x[None], w)[0])
    none = torch.zeros(0, 3, 6, 7, dtype=torch.float64, requires_grad=True)
    w.requires_grad_()
    y = F.conv2d(none, w)
    y.sum().backward()
    assert y.shape == (0, 5, 4, 5) and none.grad.shape == none.shape and (w.grad == 0).all()

@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_and_adaptive_means_have_the_bits_of_numpy(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    weight, places = rng.normal(size=(11, 37)).astype(dtype), rng.integers(0, 11, (5, 9))
    images = [rng.normal(size=shape).astype(dtype) for shape in ((2, 3, 11, 300), (3, 4, 9, 1), (2, 2, 5, 6, 7))]

    def computed() -> list[Any]:
        w = torch.from_numpy(weight).requires_grad_()
        F.embedding(torch.from_numpy(places), w, padding_idx=3).sin().sum().backward()
        found = [w.grad.numpy()]
        rows, columns = torch.from_numpy(places - 4), torch.from_numpy(places[0] * 2)
        for key in (rows, (rows, columns), (rows[:, :1], columns), (slice(None), columns)):
            w.grad = None
            w[key].sin().sum().backward()
            found.append(w.grad.numpy())
        for image, sizes in zip(images, ((4, 1), (2, 1), (3, 4, 2)), strict=True):
            x = torch.from_numpy(image).requires_grad_()
            y = getattr(F, f"adaptive_avg_pool{len(sizes)}d")(x, sizes)
            y.sin().sum().backward()
            found += [y.detach().numpy(), x.grad.numpy()]
            x.grad = None
            best, where = getattr(F, f"adaptive_max_pool{len(sizes)}d")(x.floor().sqrt(), sizes, return_indices=True)
            best.nansum().backward()
            found += [best.isnan().numpy(), best.detach().nan_to_num().numpy(), where.numpy()]
        return found

    by_kernels = computed()
    for module in (embedding, indexing):
        monkeypatch.setattr(module, "has_row_kernels", lambda *arrays: False)
    monkeypatch.setattr(pooling, "_has_kernels", lambda x: False)
    for got, want in zip(by_kernels, computed(), strict=True):
        assert got.tobytes() == want.tobytes()
