"""Attention by tiles: values, bits, memory, random streams, programs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph import torch
from dynagraph._core import _dispatch
from dynagraph.torch.core import attention

F: Any = torch.nn.functional
# batch, heads, heads of keys, rows, keys, width, width of values
SIZES = (
    ((2,), 3, 3, 5, 7, 4, 4), ((), 4, 2, 33, 100, 17, 19), ((2, 2), 2, 1, 130, 97, 64, 64), ((1,), 1, 1, 200, 300, 80, 33),
    ((2,), 2, 2, 1, 96, 64, 64), ((1,), 2, 2, 64, 193, 1, 1), ((1,), 2, 1, 70, 20, 8, 0),
)  # fmt: skip
KINDS = ("none", "bool", "float", "causal", "both", "of keys")


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def mask_of(kind: str, heads: int, rows: int, keys: int, dtype: Any) -> np.ndarray | None:
    rng = np.random.default_rng(rows)
    if kind in ("bool", "both"):
        found = rng.random((heads, rows, keys)) > 0.4
        found[:, 0] = False
        return found
    if kind == "float":
        return normal(rows, keys, dtype=dtype, seed=7)
    return rng.random((1, keys)) > 0.3 if kind == "of keys" else None


@pytest.fixture
def threads() -> Iterator[Any]:
    before = _dispatch.get_threads()
    yield _dispatch.set_threads
    _dispatch.set_threads(before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_tiles_give_what_whole_arrays_give(size: Any, dtype: Any) -> None:
    batch, heads, groups, rows, keys, width, value_width = size
    q, g = normal(*batch, heads, rows, width, dtype=dtype), normal(*batch, heads, rows, value_width, dtype=dtype, seed=3)
    k = normal(*batch, groups, keys, width, dtype=dtype, seed=1)
    v = normal(*batch, groups, keys, value_width, dtype=dtype, seed=2)
    order = tuple(range(q.ndim))
    tolerance = 3e-5 if dtype is np.float32 else 1e-12
    for kind in KINDS:
        mask, causal = mask_of(kind, heads, rows, keys, dtype), kind in ("causal", "both")
        result, sums = attention.attention(q, k, v, mask, None, None, 0.3, causal, 0.0, order)
        by = attention.attention_gradient(q, k, v, mask, None, None, result, sums, g, 0.3, causal, 0.0, order)
        wide = [None if a is None else a.astype(np.float64) if a.dtype.kind == "f" else a for a in (q, k, v, mask)]
        *wide, wide_mask = wide
        expected, _ = attention.whole_attention(*wide, (wide_mask, None), None, 0.3, causal)
        *wanted, _ = attention.whole_gradient(*wide, (wide_mask, None), None, g.astype(np.float64), 0.3, causal)
        for got, want in zip((result, *by), (expected, *wanted)):
            size = np.abs(want[np.isfinite(want)]).max(initial=1)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * size)


def test_bits_do_not_depend_on_threads_or_strides(threads: Any) -> None:
    q, k, v, g = (normal(2, 3, n, 24, seed=s) for s, n in enumerate((150, 210, 210, 150)))
    found = []
    for n, laid in ((1, False), (2, False), (3, True), (4, True), (16, False)):
        threads(n)
        given = [np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2) if laid else a for a in (q, k, v, g)]
        for causal in (False, True):
            result, sums = attention.attention(*given[:3], None, None, None, 0.2, causal, 0.0, (0, 2, 1, 3))
            result = result.swapaxes(1, 2)
            by = attention.attention_gradient(*given[:3], None, None, None, result, sums, given[3], 0.2, causal, 0.0, (0, 1, 2, 3))
            found.append((causal, [result, sums, *by]))
    for causal, arrays in found[2:]:
        for got, want in zip(arrays, found[causal][1]):
            assert np.array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("keys", [5, 32, 45, 96, 203])
def test_one_query_has_the_bits_that_it_has_beside_others(keys: int, dtype: Any) -> None:
    order = (0, 1, 2, 3)
    for width, value_width in ((64, 64), (7, 33), (1, 0)):
        q = normal(2, 6, 40, width, dtype=dtype)
        k, v = (normal(2, 3, keys, w, dtype=dtype, seed=s) for s, w in enumerate((width, value_width)))
        k[1, 0, keys // 2] = np.inf
        q[0, 1, 3] = np.nan
        for kind in KINDS:
            mask, causal = mask_of(kind, 6, 40, keys, dtype), kind in ("causal", "both")
            others = attention.attention(q, k, v, mask, None, None, 0.3, causal, 0.0, order)
            for row in (0,) if causal else (0, 3, 39):
                own = mask if mask is None or mask.shape[-2] == 1 else mask[..., row : row + 1, :]
                alone = attention.attention(q[:, :, row : row + 1], k, v, own, None, None, 0.3, causal, 0.0, order)
                for got, want in zip(alone, others):
                    np.testing.assert_array_equal(got, want[:, :, row : row + 1], f"{width} {kind} {row}")


@pytest.mark.parametrize("keys", [90, 300, 1100])  # a tile, all of a head beside each other, too many for that
def test_bits_do_not_depend_on_where_rows_lie(threads: Any, keys: int) -> None:
    batch, heads, rows, width = 2, 8, 150, 64
    q, k, v, g = (normal(batch, heads, n, width, seed=s) for s, n in enumerate((rows, keys, keys, rows)))
    order = (0, 1, 2, 3)

    def by_place(a: np.ndarray) -> np.ndarray:  # heads beside each other: rows are far apart
        return np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2)

    def by_column(a: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(a.swapaxes(2, 3)).swapaxes(2, 3)

    def run(lay: Any) -> list[Any]:
        given = [lay(a) for a in (q, k, v)]
        result, sums = attention.attention(*given, None, None, None, 0.2, False, 0.0, order)
        by = attention.attention_gradient(*given, None, None, None, lay(result), sums, lay(g), 0.2, False, 0.0, order)
        return [result, sums, *by]

    expected = run(np.ascontiguousarray)
    for n in (1, 2, 40):
        threads(n)
        for lay in (by_place, by_column):
            assert all(np.array_equal(a, b) for a, b in zip(run(lay), expected))


def test_infinities_and_nan_stay_where_they_are() -> None:
    q, k, v = normal(1, 1, 20, 8), normal(1, 1, 30, 8, seed=1), normal(1, 1, 30, 8, seed=2)
    k[0, 0, 25] = np.inf
    v[0, 0, 26] = np.nan
    odd = q.copy()
    odd[0, 0, 3] = np.nan
    result, _ = attention.attention(odd, k, v, None, None, None, 1.0, True, 0.0, (0, 1, 2, 3))
    assert np.isnan(result[0, 0, 3]).all()
    assert np.isfinite(np.delete(result[0, 0], 3, 0)).all()
    result, sums = attention.attention(q, k, v, None, None, None, 1.0, True, 0.0, (0, 1, 2, 3))
    by = attention.attention_gradient(q, k, v, None, None, None, result, sums, np.ones_like(q), 1.0, True, 0.0, (0, 1, 2, 3))
    assert all(np.isfinite(b).all() for b in by)


def test_arrays_that_do_not_fit_are_refused() -> None:
    x, out, sums = normal(1, 2, 3, 4), np.empty((1, 2, 3, 4), np.float32), np.empty((1, 2, 3, 2), np.float32)
    rest = (1.0, False, 0.0)
    _dispatch.attention(x, x, x, None, None, None, None, out, sums, *rest)
    mask, by = normal(1, 3), np.empty((1, 3), np.float32)
    for one, gradient in ((mask > 0, by), (mask, by[0]), (mask, np.empty((1, 6), np.float32)[:, ::2]), (None, by)):
        with pytest.raises(ValueError, match="do not fit"):
            _dispatch.attention_gradient(*(x, x, x, one, *[None] * 3, out, sums), *[x] * 4, gradient, None, *rest)
    bad = [
        (x[0, 0], x, x, None), (x, x[:, :, :, :3], x, None), (x, x, x[:, :, :2], None), (x, x.astype(np.float64), x, None),
        (x, x, x, np.ones((2, 3), bool)), (x, x, x, np.ones((1, 1, 2, 3, 3), bool)), (x, x[:, :0], x[:, :0], None),
    ]  # fmt: skip
    for arrays in bad:
        with pytest.raises(ValueError, match="do not fit"):
            _dispatch.attention(*arrays, None, None, None, out, sums, *rest)
    out.flags.writeable = False
    for which in ((out, sums), (out[:, :1], sums), (np.empty_like(out), sums[:, :, :2])):
        with pytest.raises(ValueError, match="do not fit"):
            _dispatch.attention(x, x, x, None, None, None, None, *which, *rest)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_and_their_gradients(causal: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((1, 2, 2, 2), (1, 1, 3, 2), (1, 1, 3, 1)))
    masks = (None, torch.rand(2, 2, 3) > 0.3, torch.randn(2, 3, dtype=torch.float64))

    def f(mask: Any, p: float) -> Any:
        def attend(*given: Any) -> Any:
            torch.manual_seed(1)
            return F.scaled_dot_product_attention(*given, mask, p, causal, enable_gqa=True)

        return attend

    for mask, p in zip(masks, (0.4, 0.0, 0.0)):
        assert torch.autograd.gradcheck(f(mask, p), (q, k, v))
        assert torch.autograd.gradgradcheck(f(mask, p), (q, k, v))
    bias = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    learned = lambda b, p=0.0: f(b, p)(q, k, v)  # noqa: E731
    for b, p in ((bias, 0.4), (bias[:1].detach().requires_grad_(), 0.0), (bias[:, :1].detach().requires_grad_(), 0.0)):
        assert torch.autograd.gradcheck(lambda b, p=p: learned(b, p), (b,))
        assert torch.autograd.gradgradcheck(lambda b, p=p: learned(b, p), (b,))


BROADCAST = [(2, 4, 70, 101), (2, 1, 70, 101), (4, 70, 101), (70, 101), (2, 1, 1, 101), (70, 1), (1, 4, 1, 1)]


@pytest.mark.parametrize("shape", BROADCAST, ids=str)
def test_gradients_by_masks_are_sums_over_what_they_broadcast_to(threads: Any, shape: Any) -> None:
    q, k, v, g = (normal(2, h, n, 5, seed=s) for s, (h, n) in enumerate(((4, 70), (2, 101), (2, 101), (4, 70))))
    mask = normal(*shape, seed=9)
    mask[mask > 1] = -np.inf
    whole = attention.whole_gradient(q, k, v, (mask, None), None, g, 0.3, True)[-1].astype(np.float64)
    axes = tuple(n for n, m in enumerate((1,) * (4 - len(shape)) + shape) if m == 1)
    wanted = whole.sum(axes, keepdims=True).reshape(shape)
    found = []
    for n in (1, 2, 5):
        threads(n)
        result, sums = attention.attention(q, k, v, mask, None, None, 0.3, True, 0.0, (0, 1, 2, 3))
        about = (None, None, result, sums, g, 0.3, True, 0.0, (0, 1, 2, 3))
        found += [attention.attention_gradient(q, k, v, mask, *about, None, (0,))[3]]
        swapped = attention.attention_gradient(q, k, v, None, *about, mask, (1,))
        found += [swapped[3], attention.attention_gradient(q, k, v, mask, *about, np.zeros((1, 1), np.float32), (1, 0))[4]]
    np.testing.assert_allclose(found[0], wanted, atol=2e-5)
    assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min, -1e9])
def test_rows_that_are_masked_whole(hidden: float) -> None:
    q, k, v = (torch.from_numpy(normal(1, 2, 5, 8, seed=s)).requires_grad_() for s in range(3))
    mask = torch.zeros(5, 5)
    mask[1], mask[2, 3:] = hidden, hidden
    mask.requires_grad_()
    by = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, mask).square().sum(), (q, k, v, mask))
    nothing = (mask == -np.inf).all(-1, True)
    weights = torch.softmax(q @ k.mT / 8**0.5 + mask.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)
    expected = torch.autograd.grad((weights @ v).square().sum(), (q, k, v, mask))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(by, expected))


def test_two_masks_are_not_added() -> None:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(3, 6, 8)
    hides, padding = torch.rand(6, 6) > 0.7, torch.tensor([[False] * n + [True] * (6 - n) for n in (4, 6, 5)])
    hides.fill_diagonal_(False)
    bias = torch.randn(6, 6).masked_fill(hides, -np.inf)
    for mask in (hides, bias.requires_grad_()):
        given = padding if mask is hides else torch.zeros(3, 6).masked_fill(padding, -np.inf)
        results = [layer(x, x, x, key_padding_mask=given, attn_mask=mask, need_weights=w)[0] for w in (False, True)]
        of = [torch.autograd.grad(r.square().sum(), [*layer.parameters(), *([mask] if mask is bias else [])]) for r in results]
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip((results[0], *of[0]), (results[1], *of[1])))


def test_dropout_takes_the_numbers_that_dropout_of_weights_takes() -> None:
    x = torch.from_numpy(normal(2, 3, 37, 8))
    torch.manual_seed(5)
    fused = F.scaled_dot_product_attention(x, x, x, dropout_p=0.3)
    following = torch.rand(3)
    torch.manual_seed(5)
    parts = F.dropout(torch.softmax(x @ x.transpose(-1, -2) / 8**0.5, -1), 0.3) @ x
    assert torch.allclose(fused, parts, atol=1e-5)
    assert torch.equal(torch.rand(3), following)


def step(q: Any, k: Any, v: Any, mask: Any = None, p: float = 0.0, causal: bool = False) -> Any:
    q, k, v = (a.detach().requires_grad_() for a in (q, k, v))
    learned = mask is not None and mask.dtype is not torch.bool
    mask = mask.detach().requires_grad_() if learned else mask
    out = F.scaled_dot_product_attention(q, k, v, mask, p, causal)
    out = F.scaled_dot_product_attention(out, k, v, mask, p, causal)
    (out * out).sum().backward()
    return out.detach(), q.grad, k.grad, v.grad, *([mask.grad] if learned else [])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("how", [{}, {"causal": True}, {"p": 0.2}, {"mask": "bool"}, {"mask": "float"}], ids=str)
def test_programs_have_the_bits_of_eager_calls(how: Any, dtype: str) -> None:
    q, k, v = (torch.from_numpy(normal(2, 3, 20, 8, seed=s)).to(getattr(torch, dtype)) for s in range(3))
    if "mask" in how:
        mask = mask_of(how["mask"], 3, 20, 20, np.float32)
        how = {"mask": torch.from_numpy(mask).to(q.dtype if how["mask"] == "float" else torch.bool)}
    compiled = dg.compile(step, mode="max", fullgraph=True)
    torch.manual_seed(3)
    expected = step(q, k, v, **how)
    for _ in range(2):
        torch.manual_seed(3)
        assert all(torch.equal(a, b) for a, b in zip(compiled(q, k, v, **how), expected))


def test_sizes_may_change() -> None:
    compiled = dg.compile(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), mode="max", fullgraph=True)
    for n in (5, 6, 7, 30):
        x = torch.from_numpy(normal(2, 3, n, 8))
        assert torch.equal(compiled(x), F.scaled_dot_product_attention(x, x, x, is_causal=True))


def test_examples_and_directions() -> None:
    x = torch.from_numpy(normal(3, 2, 5, 4, dtype=np.float64))
    whole = F.scaled_dot_product_attention(x, x, x)
    assert torch.allclose(torch.func.vmap(lambda a: F.scaled_dot_product_attention(a, a, a))(x), whole)
    _, along = torch.func.jvp(lambda a: F.scaled_dot_product_attention(a, a, a), (x,), (x,))
    near = F.scaled_dot_product_attention(*[x * (1 + 1e-6)] * 3)
    assert torch.allclose((near - whole) / 1e-6, along, atol=1e-4)


def test_a_part_of_a_projection_is_reshaped_in_a_program() -> None:
    def f(x: Any) -> Any:
        return [part.reshape(2, 3, 2, 2).transpose(1, 2) for part in x.sin().chunk(3, -1)]

    x = torch.from_numpy(normal(2, 3, 12))
    assert all(torch.allclose(a, b) for a, b in zip(dg.compile(f, mode="max", fullgraph=True)(x), f(x)))


@pytest.mark.parametrize("p", [0.0, 0.1])
def test_layers_in_programs(p: float) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, p, batch_first=True)
    x, w = torch.randn(3, 5, 8), torch.randn(3, 5, 8)

    def train(x: Any) -> Any:
        layer.zero_grad()
        loss = (layer(x) * w).sum()
        loss.backward()
        return loss.detach()

    torch.manual_seed(1)
    expected = [train(x), *(q.grad.clone() for q in layer.parameters())]
    compiled = dg.compile(train, mode="max", fullgraph=True)
    torch.manual_seed(1)
    got = [compiled(x), *(q.grad for q in layer.parameters())]
    assert all(torch.equal(a, b) for a, b in zip(got, expected))


@pytest.mark.parametrize("batch_first", [True, False])
def test_layers_give_masks_of_bools_as_they_are(monkeypatch: pytest.MonkeyPatch, batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=batch_first)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x, hidden = torch.randn(5, 5, 8), torch.rand(5, 5) > 0.6
    padding = torch.arange(5) > torch.arange(5)[:, None]
    given: list[Any] = []
    kernel = _dispatch.attention

    def spy(*operands: Any) -> None:
        given.append([None if m is None else m.dtype for m in operands[3:5]])
        kernel(*operands)

    monkeypatch.setattr(_dispatch, "attention", spy)
    numbers = [torch.zeros(5, 5).masked_fill(m, -np.inf) for m in (hidden, padding)]
    for both in (True, False):
        about = {"src_key_padding_mask": padding} if both else {}
        found = model(x, mask=hidden, **about)
        assert given == [[np.dtype(bool), np.dtype(bool) if both else None]] * 2
        expected = model(x, mask=numbers[0], **({"src_key_padding_mask": numbers[1]} if both else {}))
        assert torch.equal(found, expected)
        with pytest.warns(UserWarning, match="mismatched") if both else contextlib.nullcontext():
            assert torch.equal(model(x, mask=numbers[0], **about), expected)
        given.clear()


def test_a_key_more_is_seen_beside_masks_of_bools() -> None:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)
    x, hidden, padding = torch.randn(5, 3, 8), torch.rand(5, 5) > 0.5, torch.rand(3, 5) > 0.5
    numbers = [torch.zeros(m.shape).masked_fill(m, -np.inf) for m in (hidden, padding)]
    found, _ = layer(x, x, x, key_padding_mask=padding, attn_mask=hidden, need_weights=False)
    expected, _ = layer(x, x, x, key_padding_mask=numbers[1], attn_mask=numbers[0], need_weights=False)
    weighted, _ = layer(x, x, x, key_padding_mask=padding, attn_mask=hidden)
    assert torch.equal(found, expected)
    assert torch.allclose(found, weighted, atol=1e-6)


LONG = """
import resource
import dynagraph as dg
from dynagraph import torch

def attend(x, mask, p):
    return torch.nn.functional.scaled_dot_product_attention(x, x, x, mask, p, is_causal=mask is None)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def step(n):
    x = torch.randn(1, 4, n, 8, requires_grad=True)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True)
    bias, padding = torch.randn(n, n).requires_grad_(), torch.zeros(3, n)
    seen = bias > 1
    before = peak()
    attend(x, None, 0.2).sum().backward()
    attend(x, seen, 0.0).sum().backward()
    dg.compile(lambda: attend(x, seen, 0.1).sum().backward(), mode="max", fullgraph=True)()
    layer(torch.randn(3, n, 8), src_mask=bias, src_key_padding_mask=padding).sum().backward()  # and the gradient by the mask
    return peak() - before

step(16)
print(step(2048))
"""


def test_memory_does_not_grow_with_the_square_of_the_length() -> None:
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 30 << 10  # KiB: the mask's gradient has 16 MiB, weights for all heads 64 and 96
