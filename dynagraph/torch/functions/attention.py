"""Attention: scaled dot products, and the layer of several heads that is made of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import is_on_gpu, library_of_array, put_beside
from dynagraph.torch.core.attention import (
    are_numpys,
    attention,
    attention_gradient,
    default_scale,
    inverse,
    kept,
    weights_of,
    whole_attention,
    whole_gradient,
)
from dynagraph.torch.core.autocast import autocasting
from dynagraph.torch.core.batching import DEPTH
from dynagraph.torch.core.generator import generator_of, is_torch_compatible
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, wrap
from dynagraph.torch.core.terms import ArrayTerm
from dynagraph.torch.functions.activations import in_single
from dynagraph.torch.functions.arithmetic import add, mul
from dynagraph.torch.functions.causal_bias import CausalBias
from dynagraph.torch.functions.common import NAMESPACES, cast, check_tensor, function
from dynagraph.torch.functions.comparisons import logical_not
from dynagraph.torch.functions.diagonals import repeat_interleave
from dynagraph.torch.functions.dropout import dropout
from dynagraph.torch.functions.indexing import MASKED_FILL
from dynagraph.torch.functions.joining import cat
from dynagraph.torch.functions.linear import linear
from dynagraph.torch.functions.padding import pad
from dynagraph.torch.functions.products import matmul
from dynagraph.torch.functions.reductions import mean
from dynagraph.torch.functions.shapes import expand, permute, reshape, squeeze, transpose, unsqueeze
from dynagraph.torch.functions.softmax import SOFTMAX, softmax
from dynagraph.torch.functions.splitting import chunk


def _attention_weights(x: Any, axis: tuple[int, ...]) -> Any:
    """Softmax over the last axis; zeros where all is masked."""
    return weights_of(x)[0]


WEIGHTS = define("attention_weights", in_single(_attention_weights), SOFTMAX.vjps, ("o",), backward="SafeSoftmaxBackward0")

# -- attention as one primitive: of queries, keys, values; `masked` masks, none to two; a seed and an offset, if it is `random` --


def _others(operands: Any, masked: int, random: bool) -> tuple[Any, Any, Any, Any]:
    """Two masks, which are bools or numbers of the queries' dtype, the seed and offset; None for what is not there."""
    seed, offset = operands[-2:] if random else (None, None)
    dtype = operands[0].dtype
    mask, other = (
        None if n >= masked else operands[3 + n] if operands[3 + n].dtype.kind == "b" else operands[3 + n].astype(dtype, copy=False)
        for n in (0, 1)
    )
    return mask, other, seed, offset


def _order_of(q: Any) -> tuple[int, ...]:
    """The order in which the axes of queries lie in memory, columns last: that of results, too."""
    strides = q.strides
    return (*sorted(range(q.ndim - 1), key=lambda k: -strides[k]), q.ndim - 1)


def _attention(*operands: Any, masked: int, random: bool, scale: float, causal: bool, dropout: float) -> tuple[Any, Any]:
    """The result, and what its gradient needs of each row."""
    given = operands[0].dtype
    q, k, v = (a.astype(np.float32) if is_half(given) else a for a in operands[:3])
    mask, other, seed, offset = _others((q, k, v, *operands[3:]), masked, random)
    if are_numpys(q, k, v, mask, other):
        order = _order_of(q)
        result, sums = attention(q, k, v, mask, seed, offset, scale, causal, dropout, order, other)
        result = result.transpose(inverse(order))
    else:
        result, sums = whole_attention(q, k, v, (mask, other), kept(q, k, seed, offset, dropout), scale, causal)
    return result.astype(given, copy=False), sums


def _attention_vjp(d: Any, g: Any) -> Any:
    about = d.attrs
    masked, random = about["masked"], about["random"]
    operands = d.operands
    if not isinstance(g[0], ArrayTerm):
        *found, by_scores = _in_parts(operands, g[0], **about)
        return *found, *((by_scores,) * masked), *((None, None) if random else ())
    q, k, v, *_ = arrays = [term.array for term in operands]
    mask, other, seed, offset = _others(arrays, masked, random)
    scale, causal, dropout, by = about["scale"], about["causal"], about["dropout"], g[0].array
    if are_numpys(q, k, v, mask, other, by):
        result, sums = (term.array for term in d.outs)
        order = _order_of(q)
        learned = tuple(n for n in range(masked) if d.needs(3 + n))
        made = attention_gradient(q, k, v, mask, seed, offset, result, sums, by, scale, causal, dropout, order, other, learned)
        by_masks = [ArrayTerm(made[3 + learned.index(n)]) if n in learned else None for n in range(masked)]
        found = [ArrayTerm(a.transpose(inverse(order))) for a in made[:3]]
    else:
        *found, by_scores = map(ArrayTerm, whole_gradient(
            q, k, v, (mask, other), kept(q, k, seed, offset, dropout), by, scale, causal
        ))  # fmt: skip
        by_masks = [by_scores] * masked
    return *found, *by_masks, *((None, None) if random else ())


def _in_parts(operands: Any, g: Any, *, masked: int, random: bool, scale: float, causal: bool, dropout: float) -> tuple[Any, ...]:
    """The gradients in operations that have gradients themselves; the last one is that by scores."""
    q, k, v = operands[:3]
    *_, seed, offset = _others([term.array for term in operands], masked, random)
    groups, repeats = k.shape[-3], q.shape[-3] // max(k.shape[-3], 1)
    k, v = (_repeated(t, repeats) for t in (k, v))
    scores = (q * scale) @ k.transposed
    hidden = None
    for mask in operands[3 : 3 + masked]:
        if mask.array.dtype.kind == "b":
            hidden = ~mask.array if hidden is None else hidden | ~mask.array
        else:
            scores = scores + mask.cast(q.dtype)
    if causal:
        later = put_beside(_later(*scores.shape[-2:]), q.array)
        hidden = later if hidden is None else hidden | later
    if hidden is not None:
        scores = type(q)(wrap(put_beside(np.asarray(-np.inf, q.array.dtype), q.array))).where(type(q)(wrap(hidden)), scores)
    weights = scores.call("attention_weights", axis=(scores.ndim - 1,))
    by_weights = g @ v.transposed
    dropped = weights
    if random:
        keep = type(q)(wrap(kept(q.array, k.array, seed, offset, dropout)))
        by_weights, dropped = by_weights * keep, weights * keep
    by_scores = weights * (by_weights - (weights * by_weights).call("sum", axis=(scores.ndim - 1,), keepdims=True))
    slopes = by_scores * scale
    by_k, by_v = slopes.transposed @ q, dropped.transposed @ g
    return slopes @ k, _added(by_k, groups, repeats), _added(by_v, groups, repeats), by_scores


def _repeated(term: Any, repeats: int) -> Any:
    """Keys or values once for each head of the queries."""
    if repeats == 1:
        return term
    *batch, groups, rows, columns = term.shape
    wide = term.reshape((*batch, groups, 1, rows, columns)).call("broadcast_to", shape=(*batch, groups, repeats, rows, columns))
    return wide.reshape((*batch, groups * repeats, rows, columns))


def _added(term: Any, groups: int, repeats: int) -> Any:
    if repeats == 1:
        return term
    *batch, _, rows, columns = term.shape
    return term.reshape((*batch, groups, repeats, rows, columns)).sum(len(batch) + 1)


ATTENTION = define(
    "attention",
    _attention,
    _attention_vjp,
    "*op",
    backward="ScaledDotProductFlashAttentionForCpuBackward0",
    outputs=2,
    differentiable=(0,),
)


def _fits(q: Tensor, k: Tensor, v: Tensor, masks: Sequence[Tensor], shared: bool) -> bool:
    """Whether the primitive takes these: else operations one by one do, or say what is wrong."""
    a, b, c = q._array.shape, k._array.shape, v._array.shape
    rank = len(a)
    if len(b) != rank or len(c) != rank or a[:-3] != b[:-3] or b[:-1] != c[:-1] or a[-1] != b[-1]:
        return False
    heads = a[-3] if rank > 2 else 1
    groups = b[-3] if rank > 2 else 1
    if heads != groups and not (shared and groups and heads % groups == 0):
        return False
    wanted = (*a[:-1], b[-2])
    for mask in masks:
        shape = mask._array.shape
        if len(shape) > rank or not all(m == 1 or m == n for m, n in zip(reversed(shape), reversed(wanted))):
            return False
    return True


def _fused(q: Tensor, k: Tensor, v: Tensor, masks: Sequence[Tensor], p: float, causal: bool, scale: float) -> Tensor:
    flat = q._array.ndim == 2
    operands = [unsqueeze(t, 0) for t in (q, k, v)] if flat else [q, k, v]
    operands += masks
    if p > 0:
        shape = (*operands[0]._array.shape[:-1], k._array.shape[-2])
        numbers = generator_of(q.device).take(math.prod(shape))
        operands += [wrap(n if isinstance(n, np.ndarray) else np.array([n], np.uint64)) for n in numbers]
    result, _ = apply(
        ATTENTION, *operands, masked=len(masks), random=p > 0, scale=scale, causal=causal, dropout=p
    )
    return squeeze(result, 0) if flat else result


def _name(t: Tensor) -> str:
    names = {"int64": "long int", "int32": "int", "int16": "short int", "uint8": "unsigned char", "int8": "signed char"}
    return names.get(t.dtype.name) or t.dtype.other_name or t.dtype.name


def _check_attention(q: Tensor, k: Tensor, v: Tensor, masks: Sequence[Tensor], p: float) -> None:
    if not q.dtype is k.dtype is v.dtype:
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {_name(q)} key.dtype: {_name(k)} and "
            f"value.dtype: {_name(v)} instead."
        )
    if min(t._array.ndim for t in (q, k, v)) < 2:
        raise RuntimeError(
            f"Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: {q._array.ndim} key.dim: "
            f"{k._array.ndim} and value.dim: {v._array.ndim} instead."
        )
    for mask in masks:
        if mask.dtype not in (dtypes.bool, dtypes.float32, q.dtype):
            raise RuntimeError(
                "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
                f"{_name(mask)} and  query.dtype: {_name(q)} instead."
            )
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p:g}")
    if q._array.dtype.kind not in "fV":
        raise RuntimeError(f"expected scalar type Float but found {dtypes.scalar_name(q.dtype)}")


def _shared_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values once for each head of the queries that shares them."""
    heads = [t._array.shape[-3] for t in (q, k, v)]
    if heads[0] % heads[1] or heads[0] % heads[2]:
        raise RuntimeError("Number of heads in key and value must divide the number of heads in query")
    return repeat_interleave(k, heads[0] // heads[1], -3), repeat_interleave(v, heads[0] // heads[2], -3)


def _later(rows: int, columns: int) -> Any:
    """Where a key comes after the query."""
    return np.arange(columns) > np.arange(rows)[:, None]


def attended_where(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores where a mask is True, else minus infinity."""
    hidden = wrap(put_beside(np.asarray(-np.inf, scores._array.dtype), scores._array))
    return apply(MASKED_FILL, scores, hidden, wrap(_broadcast(~mask._array, scores)))


def _attended(scores: Tensor, v: Tensor, masks: Sequence[Tensor], is_causal: bool, p: float) -> Tensor:
    for mask in masks:
        if mask._array.dtype.kind == "b":
            scores = attended_where(scores, mask)
        else:
            _broadcast(mask._array, scores)
            scores = add(scores, cast(mask, scores.dtype))
    if is_causal:
        scores = attended_where(scores, wrap(put_beside(~_later(*scores._array.shape[-2:]), scores._array)))
    weights = apply(WEIGHTS, scores, axis=(scores._array.ndim - 1,))
    return matmul(dropout(weights, p) if p > 0 else weights, v)


def _broadcast(mask: Any, scores: Tensor) -> Any:
    shape = scores._array.shape
    for k, (m, n) in enumerate(zip(reversed(mask.shape), reversed(shape))):
        if m not in (1, n) and n != 1:
            raise RuntimeError(
                f"The size of tensor a ({n}) must match the size of tensor b ({m}) at non-singleton dimension {len(shape) - k - 1}"
            )
    return mask


@function("scaled_dot_product_attention", method=False, namespace="functional")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value``; True in a mask is what is attended to."""
    q, k, v = (check_tensor(t, "scaled_dot_product_attention", n, j) for j, (t, n) in enumerate(
        ((query, "query"), (key, "key"), (value, "value")), 1
    ))  # fmt: skip
    if isinstance(attn_mask, CausalBias):
        if is_causal:
            raise ValueError("CausalBias should not be used with causal=True")
        attn_mask, is_causal = attn_mask.as_mask()
    return _masked_attention(q, k, v, () if attn_mask is None else (attn_mask,), dropout_p, is_causal, scale, enable_gqa)


def _masked_attention(
    q: Tensor, k: Tensor, v: Tensor, masks: Sequence[Tensor], p: float, is_causal: bool = False, scale: float | None = None,
    shared: bool = False,
) -> Tensor:
    """Attention with as many masks as there are; the primitive takes two."""
    _check_attention(q, k, v, masks, p)
    factor = default_scale(q._array.shape[-1]) if scale is None else scale
    if _fits(q, k, v, masks, shared) and (p == 0 or not (is_torch_compatible() or DEPTH[0] or is_on_gpu(q._array))):
        return _fused(q, k, v, masks, p, is_causal, factor)
    if shared:
        k, v = _shared_heads(q, k, v)
    root = math.sqrt(abs(factor))
    scores = matmul(mul(q, math.copysign(root, factor)), transpose(mul(k, root), -2, -1))
    if k._array.shape[-2] == 0:
        return mul(matmul(scores, v), 0)
    return _attended(scores, v, masks, is_causal, p)


_attention_with_padding = autocasting(_masked_attention, "scaled_dot_product_attention", "functional")


# -- several heads ----------------------------------------------------------------------------------------------------------


def _check_ranks(q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int) -> bool:
    """Whether there is a batch; AssertionError where ranks do not fit."""
    ndim = q._array.ndim
    if ndim not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {ndim}-D query tensor")
    what = "batched (3-D)" if ndim == 3 else "unbatched (2-D)"
    if k._array.ndim != ndim or v._array.ndim != ndim:
        raise AssertionError(
            f"For {what} `query`, expected `key` and `value` to be {ndim}-D but found {k._array.ndim}-D and {v._array.ndim}-D "
            "tensors respectively"
        )
    if padding is not None and padding._array.ndim != ndim - 1:
        raise AssertionError(
            f"For {what} `query`, expected `key_padding_mask` to be `None` or {ndim - 1}-D but found {padding._array.ndim}-D "
            "tensor instead"
        )
    if mask is not None and mask._array.ndim not in (2, 3):
        raise AssertionError(
            f"For {what} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {mask._array.ndim}-D tensor instead"
        )
    if ndim == 2 and mask is not None and mask._array.ndim == 3:
        wanted = (heads, q._array.shape[0], k._array.shape[0])
        if mask._array.shape != wanted:
            raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {mask.shape}")
    return ndim == 3


def checked_mask(mask: Tensor | None, mask_name: str, other: Tensor | None = None, other_name: str = "") -> Tensor | None:
    """A mask of bools or numbers.  `other`: one that should be of its dtype."""
    if mask is None:
        return None
    if mask._array.dtype.kind not in "bfV":
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if other is not None and other.dtype is not mask.dtype:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.", stacklevel=3
        )
    return mask


def as_numbers(mask: Tensor | None, target_type: dtypes.dtype) -> Tensor | None:
    """A mask as what is added to scores: minus infinity where one of bools is True."""
    if mask is None or mask._array.dtype.kind != "b":
        return mask
    zeros = library_of_array(mask._array).zeros(mask._array.shape, target_type.numpy)
    return apply(MASKED_FILL, wrap(zeros), wrap(put_beside(np.asarray(-np.inf, target_type.numpy), zeros)), mask)


def alike_masks(mask: Tensor | None, padding: Tensor | None, target_type: dtypes.dtype) -> tuple[Tensor | None, Tensor | None]:
    """Both as they are where they are of one kind, else as numbers."""
    if mask is None or padding is None or mask._array.dtype.kind == padding._array.dtype.kind:
        return mask, padding
    return as_numbers(mask, target_type), as_numbers(padding, target_type)


def causal_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    """Minus infinity above the diagonal, else 0."""
    full, triu = NAMESPACES["torch"]["full"], NAMESPACES["torch"]["triu"]
    return triu(full((size, size), -math.inf, dtype=dtype, device=device), diagonal=1)  # type: ignore[no-any-return]


def _projected(
    q: Tensor, k: Tensor, v: Tensor, weight: Tensor | None, bias: Tensor | None, separate: tuple[Tensor | None, ...] | None
) -> tuple[Tensor, Tensor, Tensor]:
    biases: Any = (None, None, None) if bias is None else None
    if separate is None:
        if weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        if q is k is v:
            parts = chunk(linear(q, weight, bias), 3, -1)
            return parts[0], parts[1], parts[2]
        weights: Any = chunk(weight, 3)
    else:
        for name, w in zip("qkv", separate):
            if w is None:
                raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
        weights = separate
    biases = biases or chunk(bias, 3)
    return tuple(linear(t, w, b) for t, w, b in zip((q, k, v), weights, biases))  # type: ignore[return-value]


def _check_mask_shape(mask: Tensor, batch: int, heads: int, rows: int, columns: int) -> Tensor:
    """With a first dimension of batch and heads, or of size 1."""
    if mask._array.ndim == 2:
        if mask._array.shape != (rows, columns):
            raise RuntimeError(f"The shape of the 2D attn_mask is {mask.shape}, but should be {(rows, columns)}.")
        return unsqueeze(mask, 0)
    if mask._array.shape != (batch * heads, rows, columns):
        raise RuntimeError(f"The shape of the 3D attn_mask is {mask.shape}, but should be {(batch * heads, rows, columns)}.")
    return mask


def _by_head(t: Tensor, batch: int, heads: int, size: int) -> Tensor:
    """(places, batch, heads * size) as (batch, heads, places, size)."""
    return permute(reshape(t, t._array.shape[0], batch, heads, size), (1, 2, 0, 3))


def _static(t: Tensor, name: str, batch: int, heads: int, size: int) -> Tensor:
    for k, wanted in ((0, batch * heads), (2, size)):
        if t._array.shape[k] != wanted:
            raise AssertionError(f"expecting {name}.size({k}) of {wanted}, but got {t._array.shape[k]}")
    return reshape(t, batch, heads, t._array.shape[1], size)


def _masks(mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, columns: int) -> list[Tensor]:
    """Those that there are, for (batch, heads, rows, columns)."""
    masks = []
    if mask is not None:
        shape = mask._array.shape
        masks.append(unsqueeze(mask, 0) if shape[0] == 1 else reshape(mask, batch, heads, *shape[1:]))
    if padding is None:
        return masks
    if padding._array.shape != (batch, columns):
        k, name, wanted = (1, "column", columns) if padding._array.shape[0] == batch else (0, "row", batch)
        raise AssertionError(f"Expected key padded mask {name} dimension to be {wanted}, but got {padding._array.shape[k]}")
    return [*masks, reshape(padding, batch, 1, 1, columns)]


@function(method=False, namespace="functional")
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of several heads, and their weights; True in its masks is what is hidden."""
    is_batched = _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    q, k, v = query, key, value
    if not is_batched:
        same = (query is key, key is value)
        q = unsqueeze(query, 1)
        k = q if same[0] else unsqueeze(key, 1)
        v = k if same[1] else unsqueeze(value, 1)
        key_padding_mask = None if key_padding_mask is None else unsqueeze(key_padding_mask, 0)
    rows, batch, width = q._array.shape
    columns = k._array.shape[0]
    padding = checked_mask(key_padding_mask, "key_padding_mask", attn_mask, "attn_mask")
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    by_hint = is_causal and padding is None and not need_weights
    mask = None if by_hint else checked_mask(attn_mask, "attn_mask")
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    size = width // num_heads
    if size * num_heads != width:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        if k._array.shape[:2] != v._array.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {k.shape[:2]} do not match value's {v.shape[:2]}"
            )
    elif k._array.shape != v._array.shape:
        raise AssertionError(f"key shape {k.shape} does not match value shape {v.shape}")
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _projected(q, k, v, in_proj_weight, in_proj_bias, separate)
    if mask is not None:
        mask = _check_mask_shape(mask, batch, num_heads, rows, columns)
    if (bias_k is None) != (bias_v is None):
        given, missing = ("bias_k", "bias_v") if bias_v is None else ("bias_v", "bias_k")
        raise AssertionError(f"{given} is set but {missing} is None")
    if bias_k is not None and bias_v is not None:
        for name, t in (("key", static_k), ("value", static_v)):
            if t is not None:
                raise AssertionError(f"bias cannot be added to static {name}.")
        k = cat([k, expand(bias_k, 1, batch, -1)])
        v = cat([v, expand(bias_v, 1, batch, -1)])
        mask, padding = (None if t is None else pad(t, (0, 1)) for t in (mask, padding))
    q = _by_head(q, batch, num_heads, size)
    k = _by_head(k, batch, num_heads, size) if static_k is None else _static(static_k, "static_k", batch, num_heads, size)
    v = _by_head(v, batch, num_heads, size) if static_v is None else _static(static_v, "static_v", batch, num_heads, size)
    if add_zero_attn:
        zeros = wrap(library_of_array(k._array).zeros((batch, num_heads, 1, size), k._array.dtype))
        k, v = cat([k, zeros], 2), cat([v, zeros], 2)
        mask, padding = (None if t is None else pad(t, (0, 1)) for t in (mask, padding))
    masks = _masks(mask, padding, batch, num_heads, k._array.shape[2])
    p = dropout_p if training else 0.0
    if need_weights:
        scores = matmul(mul(q, math.sqrt(1.0 / size)), transpose(k, -2, -1))
        if masks:
            added: Any = [as_numbers(m, q.dtype) for m in masks]
            scores = add(scores, added[0] if len(added) == 1 else add(*added))
        weights = softmax(scores, -1)
        found = matmul(dropout(weights, p) if p > 0 else weights, v)
    else:
        weights = None
        masks = [logical_not(m) if m._array.dtype.kind == "b" else m for m in masks]  # True is what counts there
        if len(masks) == 2:  # which are not added: their sum would be as large as a mask for each item of the batch
            found = _attention_with_padding(q, k, v, masks, p)
        else:
            found = scaled_dot_product_attention(q, k, v, masks[0] if masks else None, p, by_hint)
    joined = reshape(permute(found, (2, 0, 1, 3)), rows, batch, width)
    result = linear(joined, out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = mean(weights, 1)
    if not is_batched:
        result = squeeze(result, 1)
        weights = None if weights is None else squeeze(weights, 0)
    return result, weights


__all__ = ["ATTENTION", "WEIGHTS", "alike_masks", "attended_where", "causal_mask", "checked_mask", "scaled_dot_product_attention"]
