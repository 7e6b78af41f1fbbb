"""Scaled dot product attention as functions of arrays.

`attention` and `attention_gradient` are programs over tiles (`dynagraph/_core/products/attention.c`), in memory that does not grow
with the product of rows and keys.  Captures know them by these names (`dynagraph/frontend/library/attention.py`), and programs call
them.  `whole_attention` and `whole_gradient` are the same in operations on whole arrays: for arrays of examples, and of other
libraries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.torch.core import philox
from dynagraph.torch.core.arrays import library_of_array, ufunc_reduce
from dynagraph.torch.core.nodes import reduced

Results = Sequence[Any]  # arrays that take results; None, or missing at the end: there is none


def _taking(out: Results | None, number: int) -> Any:
    return None if out is None or number >= len(out) else out[number]


def are_numpys(*arrays: Any) -> bool:
    """Whether all are NumPy's arrays, or None."""
    return all(array is None or type(array) is np.ndarray for array in arrays)


def attention(
    q: Any, k: Any, v: Any, mask: Any, seed: Any, offset: Any, scale: Any, causal: bool, dropout: Any,
    order: tuple[int, ...], other_mask: Any = None, out: Results | None = None,
) -> tuple[Any, Any]:
    """``softmax(q @ k.T * scale + mask + other_mask) @ v`` of each head; and of each row two numbers that its gradient needs.

    Operands are (batch..., heads, rows, columns) of one dtype, float32 or float64; `k` and `v` may have fewer heads, each for as
    many of the queries'.  A mask broadcasts to (batch..., heads, rows, keys): where it is bool, True is what counts; else it is
    added.  The other mask may broadcast otherwise (padding, beside which keys a row sees).  `causal`: key j counts for row i if
    j <= i.  What no key counts for is 0.  `dropout`: the probability with which a weight is zeroed; its word in the Philox stream
    from `seed` and `offset` is the one of its number in C order.  `order`: of axes in which the result lies in memory, and is
    given.  `out`: arrays for results, None for those that are made.
    """
    scale, dropout = float(scale), float(dropout)
    if not are_numpys(q, k, v, mask, other_mask):
        result, sums = whole_attention(q, k, v, (mask, other_mask), kept(q, k, seed, offset, dropout), scale, causal)
        return result.transpose(order), sums
    result, sums = _taking(out, 0), _taking(out, 1)
    if result is None:
        result = _new((*q.shape[:-1], v.shape[-1]), q.dtype, order)
    if sums is None:
        sums = np.empty((*q.shape[:-1], 2), q.dtype)
    q, k, v, mask, other_mask = (None if a is None else _behaved(a) for a in (q, k, v, mask, other_mask))
    _dispatch.attention(q, k, v, mask, other_mask, seed, offset, _turned_back(result, order), sums, scale, causal, dropout)
    return result, sums


def attention_gradient(
    q: Any, k: Any, v: Any, mask: Any, seed: Any, offset: Any, result: Any, sums: Any, g: Any, scale: Any, causal: bool,
    dropout: Any, order: tuple[int, ...], other_mask: Any = None, learned: tuple[int, ...] = (), out: Results | None = None,
) -> tuple[Any, ...]:
    """The gradients by `q`, `k` and `v` from `g`, that by the result: (batch..., heads, rows, columns), as `result` is here.

    `order`: of axes in which they lie in memory, and are given.  `learned`: 0 for the mask, 1 for the other one: gradients by these
    follow, of their shapes and the dtype of `q`.  No zero is -0.0, so that nothing has to add 0 to make it 0.0.
    """
    scale, dropout = float(scale), float(dropout)
    masks = (mask, other_mask)
    if not are_numpys(q, k, v, *masks, result, sums, g):
        *found, by_scores = whole_gradient(q, k, v, masks, kept(q, k, seed, offset, dropout), g, scale, causal)
        found += [reduced(by_scores, masks[m].shape) for m in learned]
        return *((a + 0).transpose(order) for a in found[:3]), *(a + 0 for a in found[3:])
    by = [_new(a.shape, a.dtype, order) if _taking(out, n) is None else _taking(out, n) for n, a in enumerate((q, k, v))]
    for n, m in enumerate(learned):
        made = _taking(out, 3 + n)
        by.append(_dispatch.new_array(masks[m].shape, q.dtype) if made is None else made)
    by_mask, by_other_mask = (by[3 + learned.index(m)] if m in learned else None for m in (0, 1))
    dq, dk, dv = (_turned_back(a, order) for a in by[:3])
    q, k, v, mask, other_mask = (None if a is None else _behaved(a) for a in (q, k, v, *masks))
    _dispatch.attention_gradient(
        q, k, v, mask, other_mask, seed, offset, _behaved(result), _behaved(sums), _behaved(g), dq, dk, dv, by_mask, by_other_mask,
        scale, causal, dropout,
    )  # fmt: skip
    return tuple(by)


attention_gradient.has_positive_zeros = True  # type: ignore[attr-defined]  # see FunctionCall


def _new(shape: tuple[int, ...], dtype: np.dtype, order: tuple[int, ...]) -> Any:
    return _dispatch.new_array([shape[k] for k in order], dtype)


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The order that turns axes back."""
    return tuple(order.index(k) for k in range(len(order)))


def _turned_back(array: Any, order: tuple[int, ...]) -> Any:
    return array.transpose(inverse(order))


def _behaved(array: Any) -> Any:
    """With elements that lie at multiples of their size, in the order of this machine's bytes."""
    return array if array.flags.aligned and array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


# -- in operations on whole arrays -----------------------------------------------------------------------------------------------


def kept(q: Any, k: Any, seed: Any, offset: Any, dropout: float) -> Any:
    """What weights are multiplied with: 0, or the inverse of the share that stays; None without dropout."""
    if seed is None:
        return None
    shape = (*q.shape[:-1], k.shape[-2])
    stays = philox.mask(seed.item(), offset.item(), shape, 1 - dropout, library_of_array(q))
    return stays.astype(q.dtype) / q.dtype.type(1 - dropout) if dropout < 1 else stays.astype(q.dtype)


def shared(array: Any, heads: int) -> Any:
    """Keys or values once for each head of the queries."""
    own = array.shape[-3]
    return array if own == heads else np.repeat(array, heads // max(own, 1), axis=-3)


def weights_of(scores: Any) -> tuple[Any, Any]:
    """Softmax over the last axis, zeros where all is masked; and the largest score and the sum of each row."""
    if not scores.shape[-1]:
        nothing = scores.sum(-1, keepdims=True)
        return scores.copy(), np.concatenate([nothing - scores.dtype.type(np.inf), nothing], -1)
    top = ufunc_reduce(np.maximum, scores, axis=-1, keepdims=True)
    masked = top == -np.inf
    shares = np.exp(scores - np.where(masked, scores.dtype.type(0), top))
    total = np.where(masked, scores.dtype.type(1), ufunc_reduce(np.add, shares, axis=-1, keepdims=True))
    return shares / total, np.concatenate([top, total], -1)


def _scores(q: Any, k: Any, masks: Sequence[Any], scale: float, causal: bool) -> Any:
    hidden = q.dtype.type(-np.inf)
    scores = np.matmul(q * q.dtype.type(scale), np.swapaxes(k, -2, -1))
    for mask in [m for m in masks if m is not None]:
        scores = np.where(mask, scores, hidden) if mask.dtype.kind == "b" else scores + mask
    if causal:
        library = library_of_array(q)
        later = library.arange(k.shape[-2]) > library.arange(q.shape[-2])[:, None]
        scores = np.where(later, hidden, scores)
    return scores


def whole_attention(q: Any, k: Any, v: Any, masks: Sequence[Any], keep: Any, scale: float, causal: bool) -> tuple[Any, Any]:
    """As `attention`, as (batch..., heads, rows, columns)."""
    k, v = shared(k, q.shape[-3]), shared(v, q.shape[-3])
    weights, sums = weights_of(_scores(q, k, masks, scale, causal))
    return np.matmul(weights if keep is None else weights * keep, v), sums


def whole_gradient(
    q: Any, k: Any, v: Any, masks: Sequence[Any], keep: Any, g: Any, scale: float, causal: bool
) -> tuple[Any, Any, Any, Any]:
    """As `attention_gradient`; and the gradient by scores, that by a mask which does not broadcast."""
    groups = k.shape[-3]
    k, v = shared(k, q.shape[-3]), shared(v, q.shape[-3])
    weights, _ = weights_of(_scores(q, k, masks, scale, causal))
    by_weights = np.matmul(g, np.swapaxes(v, -2, -1))
    dropped = weights
    if keep is not None:
        by_weights, dropped = by_weights * keep, weights * keep
    by_scores = weights * (by_weights - ufunc_reduce(np.add, weights * by_weights, axis=-1, keepdims=True))
    slopes = by_scores * q.dtype.type(scale)
    by_k, by_v = (np.matmul(np.swapaxes(a, -2, -1), b) for a, b in ((slopes, q), (dropped, g)))
    return np.matmul(slopes, k), _summed(by_k, groups), _summed(by_v, groups), by_scores


def _summed(array: Any, groups: int) -> Any:
    """Over the heads that share one."""
    *batch, heads, rows, columns = array.shape
    if heads == groups:
        return array
    return ufunc_reduce(np.add, array.reshape(*batch, groups, heads // max(groups, 1), rows, columns), axis=len(batch) + 1)


def default_scale(width: int) -> float:
    """The inverse of the root of the heads' width."""
    return 1 / math.sqrt(width) if width else math.inf


__all__ = [
    "are_numpys", "attention", "attention_gradient", "default_scale", "inverse", "kept", "shared", "weights_of", "whole_attention",
    "whole_gradient",
]  # fmt: skip
