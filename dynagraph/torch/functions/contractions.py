"""Products that sum over chosen dimensions: einsum, tensordot, kron and others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.autocast import autocasting
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.tensor import Tensor, made
from dynagraph.torch.functions.arithmetic import mul, sub
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, dim_of, function, promoted
from dynagraph.torch.functions.lapack import check_same_dtype
from dynagraph.torch.functions.products import bmm, dot, matmul, mm
from dynagraph.torch.functions.rearrangements import roll
from dynagraph.torch.functions.reductions import sum
from dynagraph.torch.functions.shapes import expand, permute, reshape, squeeze, unsqueeze
from dynagraph.torch.functions.splitting import diagonal

_DOT = autocasting(dot, "bmm", "torch")  # of einsum, which is made of products of matrices

# -- einsum -----------------------------------------------------------------------------------------------------------

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DOTS = 52  # labels from here on: dimensions that an ellipsis stands for, counted from the last


def _labels(text: str, who: str) -> list[Any]:
    """The labels of one operand, with ... as one of them."""
    found: list[Any] = []
    k = 0
    while k < len(text):
        if text[k] == " ":
            k += 1
            continue
        if text[k] == ".":
            if text[k : k + 3] != "...":
                raise RuntimeError(f"einsum(): found '.' for {who} that is not part of any ellipsis")
            if ... in found:
                raise RuntimeError(f"einsum(): found '.' for {who} for which an ellipsis was already found")
            found.append(...)
            k += 3
            continue
        if text[k] not in _LETTERS:
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {k} in the equation string, subscripts must be in [a-zA-Z]"
            )
        found.append(_LETTERS.index(text[k]))
        k += 1
    return found


def _parsed(equation: str) -> tuple[list[list[Any]], list[Any] | None]:
    left, arrow, right = equation.partition("->")
    inputs = [_labels(part, f"operand {k}") for k, part in enumerate(left.split(","))]
    return inputs, _labels(right, "the output") if arrow else None


def _from_lists(args: Sequence[Any]) -> tuple[list[list[Any]], list[Any] | None, list[Tensor]]:
    """``einsum(x, [0, 1], y, [1, 2], [0, 2])``."""
    operands, inputs = list(args[: len(args) // 2 * 2 : 2]), [list(s) for s in args[1 : len(args) // 2 * 2 : 2]]
    output = list(args[-1]) if len(args) % 2 else None
    for labels in (*inputs, *([] if output is None else [output])):
        for label in labels:
            if label is not Ellipsis and not 0 <= label < _DOTS:
                raise RuntimeError("einsum(): subscripts in subscript list should be in the range [0, 52)")
    return inputs, output, operands


def _name(label: int) -> str:
    return _LETTERS[label] if label < _DOTS else "..."


def _numbered(inputs: list[list[Any]], operands: Sequence[Tensor]) -> tuple[list[list[int]], int]:
    """The labels of each dimension of each operand; and of how many an ellipsis stands at most."""
    dots = 0
    found: list[list[int]] = []
    for k, (labels, x) in enumerate(zip(inputs, operands)):
        ndim, named = x._array.ndim, len([label for label in labels if label is not ...])
        if ... in labels:
            hidden = ndim - named
            if hidden < 0:
                raise RuntimeError(
                    f"einsum(): the number of subscripts in the equation ({named}) is more than the number of dimensions ({ndim}) "
                    f"for operand {k}"
                )
        elif named != ndim:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the number of dimensions ({ndim}) "
                f"for operand {k} and no ellipsis was given"
            )
        else:
            hidden = 0
        dots = max(dots, hidden)
        at = labels.index(...) if ... in labels else 0
        hidden_labels = [_DOTS + hidden - 1 - j for j in range(hidden)]
        found.append([*labels[:at], *hidden_labels, *labels[at + 1 :]] if ... in labels else list(labels))
    return found, dots


def _output_of(output: list[Any] | None, inputs: list[list[int]], dots: int) -> list[int]:
    hidden = [_DOTS + dots - 1 - j for j in range(dots)]
    if output is None:
        everywhere = [label for labels in inputs for label in labels if label < _DOTS]
        return hidden + sorted(label for label in set(everywhere) if everywhere.count(label) == 1)
    found: list[int] = []
    for label in output:
        found += hidden if label is ... else [label]
    for label in found:
        if found.count(label) > 1:
            raise RuntimeError(f"einsum(): output subscript {_name(label)} appears more than once in the output")
        if label < _DOTS and not any(label in labels for labels in inputs):
            raise RuntimeError(f"einsum(): output subscript {_name(label)} does not appear in the equation for any input operand")
    return found


def _without_repeats(x: Tensor, labels: list[int], k: int) -> tuple[Tensor, list[int]]:
    """The diagonal over dimensions of one label."""
    labels = list(labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            sizes = x._array.shape[first], x._array.shape[second]
            if sizes[0] != sizes[1]:
                raise RuntimeError(
                    f"einsum(): subscript {_name(label)} is repeated for operand {k} but the sizes don't match, "
                    f"{sizes[1]} != {sizes[0]}"
                )
            x = diagonal(x, 0, first, second)
            labels = [lab for j, lab in enumerate(labels) if j not in (first, second)] + [label]
    return x, labels


def _sizes(operands: Sequence[tuple[Tensor, list[int]]]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for k, (x, labels) in enumerate(operands):
        for label, n in zip(labels, x._array.shape):
            seen = sizes.get(label, 1)
            if n not in (1, seen) and seen != 1:
                raise RuntimeError(
                    f"einsum(): subscript {_name(label)} has size {n} for operand {k} which does not broadcast with previously "
                    f"seen size {seen}"
                )
            sizes[label] = n if seen == 1 else seen
    return sizes


def _dropped(x: Tensor, labels: list[int], away: set[int]) -> tuple[Tensor, list[int]]:
    """Summed over labels."""
    dims = [k for k, label in enumerate(labels) if label in away]
    if not dims:
        return x, labels
    single = all(x._array.shape[k] == 1 for k in dims)
    x = squeeze(x, tuple(dims)) if single else sum(x, tuple(dims))
    return x, [label for label in labels if label not in away]


def _pair(a: tuple[Tensor, list[int]], b: tuple[Tensor, list[int]], kept: set[int]) -> tuple[Tensor, list[int]]:
    """The product of two operands, summed over the labels that are needed no more: a product of matrices."""
    (x, xs), (y, ys) = a, b
    sizes = dict(zip(xs, x._array.shape))
    for label, n in zip(ys, y._array.shape):
        sizes[label] = n if sizes.get(label, 1) == 1 else sizes[label]
    # what has size 1 in one of the two only is no dimension of that one
    x, xs = _dropped(x, xs, {label for label, n in zip(xs, x._array.shape) if n == 1 and sizes[label] != 1})
    y, ys = _dropped(y, ys, {label for label, n in zip(ys, y._array.shape) if n == 1 and sizes[label] != 1})
    x, xs = _dropped(x, xs, {label for label in xs if label not in ys and label not in kept})
    y, ys = _dropped(y, ys, {label for label in ys if label not in xs and label not in kept})
    both = [label for label in xs if label in ys]
    batch, inner = [label for label in both if label in kept], [label for label in both if label not in kept]
    rows, columns = [label for label in xs if label not in ys], [label for label in ys if label not in xs]
    x = permute(x, [xs.index(label) for label in (*batch, *rows, *inner)])
    y = permute(y, [ys.index(label) for label in (*batch, *inner, *columns)])
    result = [*batch, *rows, *columns]
    if not inner:
        if columns:
            x = reshape(x, *x._array.shape, *(1,) * len(columns))
        if rows:
            y = reshape(y, *(sizes[label] for label in batch), *(1,) * len(rows), *(sizes[label] for label in columns))
        return mul(x, y), result

    def size(labels: Sequence[int]) -> int:
        return math.prod(sizes[label] for label in labels)

    if batch:
        product = bmm(reshape(x, size(batch), size(rows), size(inner)), reshape(y, size(batch), size(inner), size(columns)))
    elif not rows and not columns:
        product = _DOT(reshape(x, -1), reshape(y, -1))
    else:
        product = mm(reshape(x, size(rows), size(inner)), reshape(y, size(inner), size(columns)))
    return reshape(product, [sizes[label] for label in result]), result


def _order(parts: Sequence[tuple[Tensor, list[int]]], output: list[int]) -> list[tuple[int, ...]]:
    """Which two operands to multiply next: the one after the other, of several the cheapest by NumPy's path."""
    if len(parts) <= 2:
        return [tuple(range(len(parts)))]
    flat = [v for x, labels in parts for v in (np.broadcast_to(np.float64(0), x._array.shape), [_place(label) for label in labels])]
    path = np.einsum_path(*flat, [_place(label) for label in output], optimize=("greedy", 2**62))[0]
    return [tuple(step) for step in path[1:]]


def _place(label: int) -> int:
    return label if label < _DOTS else 51 - (label - _DOTS)


@function("einsum", method=False)
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Einstein's sums: the product of operands whose dimensions have labels, summed over those that the output has not.

    >>> from dynagraph import torch
    >>> torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 4)).shape
    torch.Size([2, 4])
    """
    if isinstance(equation, Tensor):
        inputs, output, tensors = _from_lists((equation, *operands))
    else:
        inputs, output = _parsed(equation)
        tensors = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else list(operands)
    if not tensors:
        raise RuntimeError("einsum(): must provide at least one operand")
    for x in tensors:
        check_tensor(x, "einsum", "operands", None)
    if len(inputs) != len(tensors):
        more = "more" if len(tensors) > len(inputs) else "fewer"
        raise (ValueError if isinstance(equation, Tensor) else RuntimeError)(
            f"einsum(): {more} operands were provided than specified in the equation"
        )
    numbered, dots = _numbered(inputs, tensors)
    target = _output_of(output, numbered, dots)
    parts = [_without_repeats(x, labels, k) for k, (x, labels) in enumerate(zip(tensors, numbered))]
    sizes = _sizes(parts)
    for step in _order(parts, target):
        chosen = [parts[k] for k in step]
        parts = [part for k, part in enumerate(parts) if k not in step]
        current = chosen[0]
        for k, other in enumerate(chosen[1:]):
            later = [*chosen[k + 2 :], *parts]
            current = _pair(current, other, {*target, *(label for _, labels in later for label in labels)})
        parts.append(current)
    x, labels = _dropped(*parts[0], {label for label in parts[0][1] if label not in target})
    missing = [label for label in target if label not in labels]  # of an ellipsis that no operand has
    assert not missing, sizes
    return permute(x, [labels.index(label) for label in target]) if labels else x


# -- others -----------------------------------------------------------------------------------------------------------


@function("tensordot", method=False, out=True)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """The product summed over the last `dims` dimensions of one and the first of the other, or over pairs that are named."""
    check_tensor(a, "tensordot", "a")
    check_tensor(b, "tensordot", "b", 2)
    if isinstance(dims, Tensor):
        dims = dims._array.tolist() if dims._array.size > 1 else int(dims._array)
    if isinstance(dims, (int, np.integer)):
        n = int(dims)
        if n < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={n}")
        if n > min(a._array.ndim, b._array.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={n}")
        first, second = list(range(-n, 0)), list(range(n))
    else:
        first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(first) != len(second):
        raise RuntimeError("both dimension lists should have same length")
    given = list(zip(first, second))
    first, second = [dim_of(d, a._array.ndim) for d in first], [dim_of(d, b._array.ndim) for d in second]
    for x, y in given:
        n, m = a._array.shape[x], b._array.shape[y]
        if n != m and 1 not in (n, m):
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {n} in dim {x} and second has size {m} in dim {y}"
            )
        if n != m:
            a, b = (sum(a, x, True, dtype=a.dtype), b) if m == 1 else (a, sum(b, y, True, dtype=b.dtype))
    rows = [k for k in range(a._array.ndim) if k not in first]
    columns = [k for k in range(b._array.ndim) if k not in second]
    inner = math.prod(a._array.shape[k] for k in first)
    shape = [a._array.shape[k] for k in rows] + [b._array.shape[k] for k in columns]
    left = reshape(permute(a, [*rows, *first]), math.prod(a._array.shape[k] for k in rows), inner)
    right = reshape(permute(b, [*second, *columns]), inner, math.prod(b._array.shape[k] for k in columns))
    return reshape(mm(left, right), shape)


@function("inner", out=True)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The sums of products along the last dimensions."""
    check_tensor(other, "inner", "other", 2)
    if not input._array.ndim or not other._array.ndim:
        return mul(input, other)
    if input._array.shape[-1] != other._array.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(input._array.shape)} and "
            f"{list(other._array.shape)}"
        )
    if input._array.ndim == other._array.ndim == 1:
        return dot(input, other)
    return tensordot(input, other, [[-1], [-1]])


@function("kron", out=True)
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker's product: each element of one times the whole of the other."""
    check_tensor(other, "kron", "other", 2)
    n = max(input._array.ndim, other._array.ndim)
    s, t = ((1,) * (n - x._array.ndim) + x._array.shape for x in (input, other))
    left = reshape(input, [m for size in s for m in (size, 1)])
    right = reshape(other, [m for size in t for m in (1, size)])
    return reshape(mul(left, right), [x * y for x, y in zip(s, t)])


@function("trace")
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if check_tensor(input, "trace", "input")._array.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input._array.ndim}")
    return sum(diagonal(input))


def _check_chain(tensors: Any, who: str) -> list[Tensor]:
    found = list(tensors)
    if len(found) < 2:
        raise RuntimeError(f"{who}(): expected at least 2 tensors but got {len(found)}")
    for k, x in enumerate(found):
        ndim = x._array.ndim
        if k in (0, len(found) - 1):
            if ndim not in (1, 2):
                raise RuntimeError(f"{who}(): the {'first' if k == 0 else 'last'} tensor must be 1D or 2D but got {ndim}D")
        elif ndim != 2:
            raise RuntimeError(f"{who}(): tensor {k} must be 2D but got {ndim}D")
    for k in range(1, len(found)):
        before, after = found[k - 1], found[k]
        if before._array.shape[-1] != after._array.shape[0]:
            raise RuntimeError(
                f"{who}(): tensors {k - 1} and {k} with shapes {list(before._array.shape)} and {list(after._array.shape)} cannot "
                "be multiplied"
            )
    return found


@function("multi_dot", namespace="linalg", method=False, out=True)
def multi_dot(tensors: Any) -> Tensor:
    """The product of matrices in the order that needs the fewest multiplications (T. Cormen et al., "Algorithms")."""
    found = _check_chain(tensors, "multi_dot")
    is_row, is_column = found[0]._array.ndim == 1, found[-1]._array.ndim == 1
    if is_row:
        found[0] = unsqueeze(found[0], 0)
    if is_column:
        found[-1] = unsqueeze(found[-1], -1)
    result = _chain(found, 0, len(found) - 1, _splits([x._array.shape[0] for x in found] + [found[-1]._array.shape[1]]))
    if is_column:
        result = squeeze(result, -1)
    return squeeze(result, 0) if is_row else result


def _splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    n = len(sizes) - 1
    cost = {(k, k): 0 for k in range(n)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            costs = [cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)]
            cost[i, j] = min(costs)
            split[i, j] = i + costs.index(cost[i, j])
    return split


def _chain(found: list[Tensor], i: int, j: int, split: dict[tuple[int, int], int]) -> Tensor:
    if i == j:
        return found[i]
    k = split[i, j]
    return mm(_chain(found, i, k, split), _chain(found, k + 1, j, split))


@function("chain_matmul", method=False, out=True)
def chain_matmul(*matrices: Any) -> Tensor:
    """As `linalg.multi_dot`."""
    given = matrices[0] if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)) else matrices
    return given[0] if len(given) == 1 else multi_dot(given)


def _cross(x: Tensor, y: Tensor, dim: int) -> Tensor:
    return sub(mul(roll(x, -1, dim), roll(y, -2, dim)), mul(roll(x, -2, dim), roll(y, -1, dim)))


@function("cross", namespace="linalg", method=False, out=True)
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The vector product along a dimension of three elements."""
    check_tensor(other, "linalg.cross", "other", 2)
    if input._array.ndim != other._array.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    k = dim_of(dim, input._array.ndim)
    n, m = (x._array.shape[k] for x in (input, other))
    if n != 3 or m != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {n} and {m}")
    x, y = promoted("linalg.cross", input, other)
    return _cross(x, y, k)


@function("cross", out=True)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The vector product along `dim`, or along the first dimension of three elements."""
    if dim is None:
        found = next((k for k, n in enumerate(input._array.shape) if n == 3), None)
        if found is None:
            raise RuntimeError("no dimension of size 3 in input")
        dim = found
    return linalg_cross(input, other, dim=dim)


@function("vecdot", namespace="linalg", method=False, out=True)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sum of products along a dimension; the first is conjugated."""
    for t in (x, y):
        if t._array.dtype.kind not in "fcV":
            raise RuntimeError(f"linalg.vecdot: Expected floating point or complex tensors. Got {dtypes.scalar_name(t.dtype)}")
    check_same_dtype(x, y, "linalg.vecdot", "x", "y")
    return sum(mul(x.conj(), y), dim)  # type: ignore[attr-defined]


@function("diagonal", namespace="linalg", method=False)
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices: a view."""
    return diagonal(A, offset, dim1, dim2)


@function("matmul", namespace="linalg", method=False, out=True)
def linalg_matmul(input: Tensor, other: Tensor) -> Tensor:
    """As `torch.matmul`."""
    return matmul(input, other)


@function("vander", namespace="linalg", method=False)
def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of elements, in the last dimension."""
    if not check_tensor(x, "linalg.vander", "x")._array.ndim:
        raise RuntimeError("linalg.vander: Expected dim of x to be at least 1, got 0")
    if is_half(x._array.dtype) or x._array.dtype.kind == "b":
        name = dtypes.scalar_name(x.dtype)
        raise RuntimeError(f"linalg.vander supports floating point, complex, and integer tensors, but got {name}")
    n = x._array.shape[-1] if N is None else N
    if n <= 1 and N is not None and n < 1:
        raise RuntimeError("linalg.vander: N must be greater than 1.")
    if x._array.dtype.kind in "iub":
        x = NAMESPACES["torch"]["tensor"](x._array.astype(np.int64))
    ones = made(library_of_array(x._array).ones((*x._array.shape, 1), x._array.dtype))
    if n == 1:
        return ones
    powers = expand(unsqueeze(x, -1), (*x._array.shape, n - 1)).cumprod(-1)  # type: ignore[attr-defined]
    return NAMESPACES["torch"]["cat"]([ones, powers], -1)


__all__ = ["einsum", "kron", "multi_dot", "tensordot"]
