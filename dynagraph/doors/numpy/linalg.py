"""Doors of linear algebra: products, contractions, norms.  What multiplies matrices ends in the op `matmul`."""

from __future__ import annotations

import importlib
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph import config, products
from dynagraph.doors.numpy.arguments import (
    as_index,
    flag,
    is_contiguous,
    is_fortran,
    numpy_error,
    only,
    ravel,
    reshape,
    several_axes,
    take,
)
from dynagraph.doors.numpy.builder import Builder, Unsupported, known_dtype, leaves
from dynagraph.doors.numpy.elementwise import apply, product_of_scalars, resolve
from dynagraph.doors.numpy.layout import Order, c_order, copy_order, iteration_order, steps_of
from dynagraph.doors.numpy.movement import diagonal_of, permute
from dynagraph.doors.numpy.reductions import reduce
from dynagraph.doors.numpy.table import Door, numpy_function, numpy_method, register_function
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, Shape, numel

OWN = (dtypes.float32, dtypes.float64)  # what `dynagraph.products` multiplies itself

# -- products ---------------------------------------------------------------------------------------------------------


def matmul(b: Builder, left: Any, right: Any) -> Node:
    """``left @ right``: vectors are rows or columns that the result does not have."""
    x, y = b.as_node(left), b.as_node(right)
    if x.ndim == 0 or y.ndim == 0:
        raise numpy_error("matmul: takes no 0-d operands; use *")
    of_cupy = b.check_op is not None  # which multiplies bfloat16 as such; NumPy, in float32
    dtype = x.dtype if of_cupy and x.dtype is y.dtype is dtypes.bfloat16 else resolve(np.matmul, (x, y))[0]
    dtype = _product_dtype("matmul", dtype)
    return _matmul(b, b.cast(x, dtype), b.cast(y, dtype))


def _own_matmul(b: Builder, left: Any, right: Any) -> Node:
    """Of `dynagraph.products`."""
    x, y = b.as_node(left), b.as_node(right)
    if x.dtype.is_half and x.dtype is y.dtype:
        return b.cast(_own_matmul(b, b.cast(x, dtypes.float32), b.cast(y, dtypes.float32)), x.dtype)
    is_own = x.dtype is y.dtype and x.dtype in OWN and x.ndim + y.ndim > 2 and x.ndim > 0 and y.ndim > 0
    is_own = is_own and config.products != "blas" and b.check_op is None
    return _matmul(b, x, y, "own_matmul") if is_own else matmul(b, x, y)


def _product_dtype(who: str, dtype: dtypes.DType) -> dtypes.DType:
    if dtype.is_bool:
        raise Unsupported("UNSUPPORTED_DTYPE", f"{who}: of bools is not captured; cast to an integer dtype")
    return dtype


def _matmul(b: Builder, x: Node, y: Node, op: str = "matmul") -> Node:
    row, column = x.ndim == 1, y.ndim == 1
    product = _multiplied(b, op, reshape(b, x, (1, *x.shape)) if row else x, reshape(b, y, (*y.shape, 1)) if column else y)
    shape = product.shape[:-1] if column else product.shape
    if row:
        shape = shape[:-1] if column else (*shape[:-2], shape[-1])
    return reshape(b, product, shape) if row or column else product


def _multiplied(b: Builder, op: str, left: Node, right: Node) -> Node:
    """Matrices of one dtype."""
    every = config.products == "own" and b.check_op is None and left.dtype in OWN
    return b.call("own_matmul" if every else op, left, right)


register_function(np.matmul, Door("matmul", matmul, like=np.matmul))
register_function(products.matmul, Door("matmul", _own_matmul, returns="array"))


def _common(b: Builder, who: str, *operands: Any) -> list[Node]:
    nodes = [b.as_node(x) for x in operands]
    dtype = _product_dtype(who, known_dtype(np.result_type(*(n.dtype.numpy for n in nodes)), who))
    return [n if n.dtype is dtype else b.lay(b.cast(n, dtype), copy_order(b.layout(n))) for n in nodes]  # NumPy copies


def _pair(b: Builder, who: str, left: Any, right: Any) -> list[Node]:
    """As `_common`, but a second operand of lists without elements has the dtype of the first: NumPy's C code finds none in it."""
    first = b.as_node(left)
    empty = isinstance(right, (list, tuple)) and not any(True for _ in leaves(right))
    return _common(b, who, first, b.as_node(right, first.dtype if empty else None))


def _contract(b: Builder, x: Node, y: Node, x_axes: Sequence[int], y_axes: Sequence[int]) -> Node:
    """Sum over pairs of axes; the result has the other axes of `x`, then those of `y`."""
    x_free, y_free = ([k for k in range(n.ndim) if k not in axes] for n, axes in ((x, x_axes), (y, y_axes)))
    if any(x.shape[i] != y.shape[j] for i, j in zip(x_axes, y_axes)):
        raise numpy_error(f"shapes {x.shape} and {y.shape} differ along axes {tuple(x_axes)} and {tuple(y_axes)}")
    inner = numel(x.shape[k] for k in x_axes)
    rows, columns = [x.shape[k] for k in x_free], [y.shape[k] for k in y_free]
    left = _matrix(b, x, x_free, list(x_axes), (numel(rows), inner))
    right = _matrix(b, y, list(y_axes), y_free, (inner, numel(columns)))
    return reshape(b, _multiplied(b, "matmul", left, right), [*rows, *columns])


def _matrix(b: Builder, x: Node, row_axes: list[int], column_axes: list[int], shape: Shape) -> Node:
    order = row_axes + column_axes
    moved = x if order == list(range(x.ndim)) else permute(b, x, order)
    return moved if len(row_axes) == len(column_axes) == 1 else reshape(b, moved, shape)


@numpy_function(np.dot)
def dot(builder: Builder, /, a: Any, b: Any) -> Node:
    return _dot(builder, *_pair(builder, "dot", a, b))


def _dot(b: Builder, x: Node, y: Node) -> Node:
    if x.ndim == 0 or y.ndim == 0:
        return _scaled(b, x, y)
    if y.ndim == 1 or (x.ndim <= 2 and y.ndim == 2):
        if x.ndim == 2 and (y.ndim == 1 or y.shape[1] == 1):
            x = _in_one_piece(b, x)
        elif y.ndim == 2 and (x.ndim == 1 or x.shape[0] == 1):
            y = _in_one_piece(b, y)
        return _in_c_order(b, _matmul(b, x, y))
    return _contract(b, x, y, [x.ndim - 1], [y.ndim - 2])


def _in_one_piece(b: Builder, matrix: Node) -> Node:
    """A matrix that ``np.dot`` multiplies by a vector.  NumPy copies parts of others first; where rows are apart gemv may round
    in another order.
    """
    stays = b.check_op is not None or 1 in matrix.shape or is_contiguous(b, matrix) or is_fortran(b, matrix)
    return matrix if stays else b.call("copy", matrix)


numpy_method("dot")(dot)


def _scaled(b: Builder, x: Node, y: Node) -> Node:
    """A product with a single number: of matrices by BLAS, of all else by np.multiply."""
    if x.ndim == y.ndim == 0 and b.check_op is None:
        return product_of_scalars(b, x, y)
    product = apply(b, np.multiply, x, y)
    by_blas = product.dtype.is_inexact and not product.dtype.is_half and product.ndim <= 2
    if not by_blas or product.ndim == 0:
        return product
    factor, zero = b.cast(y if y.ndim == 0 else x, product.dtype), b.scalar(0.0, product.dtype)
    product = b.call("where", b.call("equal", factor, zero), zero, _from_zero(b, product))  # BLAS adds nothing then, NaN neither
    return _in_c_order(b, product)


def _from_zero(b: Builder, product: Node) -> Node:
    """A product that NumPy adds to zero: -0.0 becomes 0.0."""
    return b.call("add", product, b.scalar(0.0, product.dtype)) if product.dtype.is_inexact else product


def _in_c_order(b: Builder, product: Node) -> Node:
    """Also where it has lost an axis of size 1."""
    base = product.args[0] if product.is_op("reshape") else product
    b.lay(base, c_order(base.ndim))
    return product


@numpy_function(np.inner)
def inner(b: Builder, left: Any, right: Any) -> Node:
    x, y = _pair(b, "inner", left, right)
    if x.ndim == 0 or y.ndim == 0:
        return _scaled(b, x, y)
    return _contract(b, x, y, [x.ndim - 1], [y.ndim - 1])


@numpy_function(np.vdot)
def vdot(b: Builder, left: Any, right: Any) -> Node:
    x, y = (ravel(b, n) for n in _pair(b, "vdot", left, right))
    return _matmul(b, b.call("conjugate", x) if x.dtype.is_complex else x, y)


@numpy_function(np.outer)
def outer(builder: Builder, /, a: Any, b: Any) -> Node:
    x, y = (ravel(builder, builder.as_node(v)) for v in (a, b))
    return apply(builder, np.multiply, reshape(builder, x, (*x.shape, 1)), reshape(builder, y, (1, *y.shape)))


@numpy_function(np.tensordot, returns="array")
def tensordot(builder: Builder, /, a: Any, b: Any, axes: Any) -> Node:
    x, y = _common(builder, "tensordot", a, b)
    return _tensordot(builder, x, y, axes)


def _tensordot(b: Builder, x: Node, y: Node, axes: Any) -> Node:
    if isinstance(axes, (tuple, list)):
        first, second = axes
        return _contract(b, x, y, several_axes(first, x.ndim, "tensordot"), several_axes(second, y.ndim, "tensordot"))
    count = as_index(axes, "tensordot")
    if not 0 <= count <= min(x.ndim, y.ndim):
        raise numpy_error(f"tensordot: {count} axes of arrays of {x.ndim} and {y.ndim} dimensions")
    return _contract(b, x, y, range(x.ndim - count, x.ndim), range(count))


# -- einsum -----------------------------------------------------------------------------------------------------------

EINSUM: Any = importlib.import_module("numpy._core.einsumfunc")  # which has the function in C, and what its paths are made of
_Term = tuple[Node, str]  # an operand, and a letter for each of its axes


@numpy_function(np.einsum)
def einsum(b: Builder, *operands: Any, optimize: Any, **others: Any) -> Node:
    """Sums of products, two operands at a time from the left; each pair is one matrix product.

    With a path (`optimize`) NumPy's own source is followed, which asks for one product after the other.
    """
    only(optimize is False, "einsum", "optimize", optimize, "a path is NumPy's to take")
    return _einsum(b, *operands, **others)


@numpy_function(EINSUM.c_einsum)
def _einsum(
    b: Builder, *operands: Any, out: Any = None, dtype: Any = None, order: Any = "K", casting: Any = "safe"
) -> Node:
    others = (out, dtype, order, casting)
    only(others == (None, None, "K", "safe"), "einsum", "out, dtype, order, casting", others, "leave them out")
    subscripts, arrays = _subscripts(operands)
    given = [b.as_node(x) for x in arrays]
    nodes = _common(b, "einsum", *given)
    if not nodes:
        raise numpy_error("einsum: takes one operand or more")
    inputs, output = _parse(subscripts, nodes)
    terms = [_diagonals(b, *term) for term in zip(nodes, inputs)]
    term = _sum_alone(b, *terms[0], needed=_needed(terms[1:], output))
    for position, other in enumerate(terms[1:], start=1):
        needed = _needed(terms[position + 1 :], output)
        term = _multiply_terms(b, term, _sum_alone(b, *other, needed=needed | set(term[1])), needed)
    result, indices = _sum_alone(b, *term, needed=set(output))
    moved = permute(b, result, [indices.index(i) for i in output])
    if result is terms[0][0] or len(output) < 2:
        return moved  # the operand itself, or its diagonal, is a view, as in NumPy
    return b.copy(moved, _order_of_einsum(b, [_diagonals(b, *term) for term in zip(given, inputs)], output))


def _subscripts(operands: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """The string and the arrays, also of the form that gives each array with the list of its indices."""
    if operands and isinstance(operands[0], str):
        return operands[0], operands[1:]
    lists = operands[1::2]
    only(all(isinstance(given, (list, tuple)) for given in lists), "einsum", "subscripts", "of another type", "strings or lists")
    text = ",".join(_letters(given) for given in lists)
    if len(operands) % 2:
        text += "->" + _letters(operands[-1])
        return text, operands[:-1:2]
    return text, operands[::2]


def _letters(sublist: Any) -> str:
    only(isinstance(sublist, (list, tuple)), "einsum", "subscripts", type(sublist).__name__, "a list of integers and Ellipsis")
    return "".join("..." if index is Ellipsis else _letter(as_index(index, "einsum")) for index in sublist)


def _letter(index: int) -> str:
    letters = string.ascii_uppercase + string.ascii_lowercase
    if not 0 <= index < len(letters):
        raise numpy_error(f"einsum: the subscript {index} is not in 0 to {len(letters) - 1}")
    return letters[index]


def _diagonals(b: Builder, x: Node, indices: str) -> _Term:
    """Without repeated indices: the diagonal along their axes."""
    for i in dict.fromkeys(indices):
        while indices.count(i) > 1:
            first = indices.index(i)
            second = indices.index(i, first + 1)
            if x.shape[first] != x.shape[second]:
                raise numpy_error(f"einsum: index {i} has the sizes {x.shape[first]} and {x.shape[second]} in one operand")
            x = diagonal_of(b, x, "einsum", 0, first, second)
            indices = indices[:first] + indices[first + 1 : second] + indices[second + 1 :] + i
    return x, indices


def _order_of_einsum(b: Builder, terms: Sequence[_Term], output: str) -> Order:
    """NumPy iterates over the axes of the result and those that are summed, together; `terms` are not cast: it casts in buffers."""
    axes = output + "".join(sorted(set().union(*(letters for _, letters in terms)) - set(output)))
    steps = []
    for node, letters in terms:
        strides = dict(zip(letters, steps_of(b.layout(node), node.ndim)))
        steps.append(tuple(strides.get(i, 0) for i in axes))
    return tuple(k for k in iteration_order(steps, len(axes)) if k < len(output))


def _needed(later: Sequence[_Term], output: str) -> set[str]:
    return set(output).union(*(indices for _, indices in later))


def _sum_alone(b: Builder, x: Node, indices: str, needed: set[str]) -> _Term:
    """Without the indices that nothing else mentions: they are summed at once."""
    alone = [k for k, i in enumerate(indices) if i not in needed]
    if not alone:
        return x, indices
    return b.call("sum", x, axis=tuple(alone), keepdims=False), "".join(i for i in indices if i in needed)


def _multiply_terms(b: Builder, first: _Term, second: _Term, needed: set[str]) -> _Term:
    """The product of two terms: shared indices that are needed are batches, the others are summed."""
    (x, x_indices), (y, y_indices) = first, second
    sizes = _sizes(first, second)
    x, y = (_stretched(b, n, i, sizes) for n, i in ((x, x_indices), (y, y_indices)))
    shared = [i for i in x_indices if i in y_indices]
    batch, summed = [i for i in shared if i in needed], [i for i in shared if i not in needed]
    rows, columns = [i for i in x_indices if i not in shared], [i for i in y_indices if i not in shared]
    if not summed:
        return _outer_product(b, (x, x_indices), (y, y_indices), batch + rows + columns)
    groups = [numel(sizes[i] for i in group) for group in (batch, rows, summed, columns)]
    left = reshape(b, permute(b, x, [x_indices.index(i) for i in batch + rows + summed]), (groups[0], groups[1], groups[2]))
    right = reshape(b, permute(b, y, [y_indices.index(i) for i in batch + summed + columns]), (groups[0], groups[2], groups[3]))
    if not batch:
        left, right = reshape(b, left, left.shape[1:]), reshape(b, right, right.shape[1:])
    product = _multiplied(b, "matmul", left, right)
    indices = batch + rows + columns
    return reshape(b, product, [sizes[i] for i in indices]), "".join(indices)


def _sizes(*terms: _Term) -> dict[str, Dim]:
    sizes: dict[str, Dim] = {}
    for node, indices in terms:
        for i, d in zip(indices, node.shape):
            if sizes.get(i, 1) == 1:
                sizes[i] = d
            elif d != 1 and d != sizes[i]:
                raise numpy_error(f"einsum: index {i} has the sizes {sizes[i]} and {d}")
    return sizes


def _stretched(b: Builder, x: Node, indices: str, sizes: dict[str, Dim]) -> Node:
    """NumPy lets sizes of 1 broadcast against the same index of another operand."""
    shape = tuple(sizes[i] for i in indices)
    return x if all(d == s for d, s in zip(x.shape, shape)) else b.call("broadcast_to", x, shape=shape)


def _outer_product(b: Builder, first: _Term, second: _Term, indices: list[str]) -> _Term:
    aligned = []
    for x, names in (first, second):
        present = [i for i in indices if i in names]
        moved = permute(b, x, [names.index(i) for i in present])
        sizes = dict(zip(present, moved.shape))
        aligned.append(reshape(b, moved, [sizes.get(i, 1) for i in indices]))
    return _from_zero(b, b.call("multiply", *aligned)), "".join(indices)


def _parse(subscripts: str, nodes: Sequence[Node]) -> tuple[list[str], str]:
    """One letter for each axis of each operand, and the letters of the result; an Ellipsis gets letters of its own."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(nodes):
        raise numpy_error(f"einsum: {subscripts!r} has {len(inputs)} terms for {len(nodes)} operands")
    spare = [c for c in string.ascii_letters if c not in text]
    ranks = [n.ndim - len(t.replace("...", "")) if "..." in t else 0 for n, t in zip(nodes, inputs)]
    if any(r < 0 for r in ranks):
        raise numpy_error(f"einsum: {subscripts!r} has more indices than an operand has dimensions")
    only(len(spare) >= max(ranks), "einsum", "subscripts", subscripts, "at most 52 indices")
    broadcast = "".join(spare[: max(ranks)])
    terms = [t.replace("...", broadcast[len(broadcast) - r :]) for t, r in zip(inputs, ranks)]
    for term, node in zip(terms, nodes):
        if not set(term) <= set(string.ascii_letters) or len(term) != node.ndim:
            raise numpy_error(f"einsum: {subscripts!r} does not fit an operand of shape {node.shape}")
    letters = "".join(terms)
    named = sorted(i for i in set(letters) - set(broadcast) if letters.count(i) == 1)
    output = right.replace("...", broadcast) if arrow else broadcast + "".join(named)
    if not set(output) <= set(letters) or len(set(output)) != len(output) or not set(broadcast) <= set(output):
        raise numpy_error(f"einsum: the result's indices in {subscripts!r} do not fit those of the operands")
    return terms, output


# -- norms ------------------------------------------------------------------------------------------------------------


@numpy_function(np.linalg.norm)
def norm(b: Builder, x: Any, ord: Any, axis: Any, keepdims: Any) -> Node:
    """Vector norms, and the matrix norms that are sums and extremes; singular values are not captured."""
    node = b.as_node(x)
    node = node if node.dtype.is_inexact else b.lay(b.cast(node, dtypes.float64), copy_order(b.layout(node)))
    whole = axis is None
    axes = tuple(range(node.ndim)) if whole else several_axes(axis, node.ndim, "norm")
    if whole and (ord is None or (ord in ("f", "fro") and node.ndim == 2) or (ord == 2 and node.ndim == 1)):
        return _norm_of_all(b, node, keepdims)
    if len(axes) not in (1, 2):
        raise numpy_error(f"norm: takes one or two axes, got {len(axes)}")
    if len(axes) == 1:
        return _vector_norm(b, node, ord, axes[0], keepdims)
    return _matrix_norm(b, node, ord, axes, keepdims)


def _norm_of_all(b: Builder, x: Node, keepdims: Any) -> Node:
    """NumPy takes the dot product of the elements, as they lie in memory, with themselves; another library adds up squares."""
    if x.dtype is dtypes.float16:
        raise Unsupported("UNSUPPORTED_DTYPE", "norm: of all halves is not captured; NumPy sums their squares in float32")
    if b.check_op is not None:
        return _root_of_squares(b, x, tuple(range(x.ndim)), keepdims)
    flat = ravel(b, permute(b, x, list(iteration_order([steps_of(b.layout(x), x.ndim)], x.ndim))))
    if not is_contiguous(b, flat):
        flat = b.copy(flat)
    parts = _parts_in_steps(b, flat) if x.dtype.is_complex else [flat]
    squares = [_dot(b, part, part) for part in parts]
    root = b.call("sqrt", b.call("add", *squares) if len(squares) == 2 else squares[0])
    return reshape(b, root, (1,) * x.ndim) if flag(keepdims, "norm") else root


def _parts_in_steps(b: Builder, flat: Node) -> list[Node]:
    """The real and the imaginary parts as they lie in complex numbers: BLAS takes them in steps of two."""
    pairs = [reshape(b, b.call(part, flat), (*flat.shape, 1)) for part in ("real", "imag")]
    numbers = ravel(b, b.copy(b.call("concatenate", *pairs, axis=1)))
    return [take(b, numbers, 0, start, flat.shape[0], 2) for start in (0, 1)]


def _root_of_squares(b: Builder, x: Node, axes: tuple[int, ...], keepdims: Any) -> Node:
    parts = [b.call("real", x), b.call("imag", x)] if x.dtype.is_complex else [x]
    squares = [b.call("square", part) for part in parts]
    return b.call("sqrt", reduce(b, "sum", b.call("add", *squares) if len(squares) == 2 else squares[0], axes, keepdims))


def _vector_norm(b: Builder, x: Node, order: Any, axis: int, keepdims: Any) -> Node:
    only(order is None or type(order) in (int, float), "norm", "ord", order, "a Python number")
    if order is None or order == 2:
        return _root_of_squares(b, x, (axis,), keepdims)
    if order == 0:
        return reduce(b, "sum", b.cast(b.call("not_equal", x, b.scalar(0.0, x.dtype)), x.dtype.real), axis, keepdims)
    size = b.call("absolute", x)
    if order in (float("inf"), float("-inf")):
        return reduce(b, "max" if order > 0 else "min", size, axis, keepdims)
    if order == 1:
        return reduce(b, "sum", size, axis, keepdims)
    total = reduce(b, "sum", apply(b, np.power, size, float(order)), axis, keepdims)
    return apply(b, np.power, total, 1.0 / order)


def _matrix_norm(b: Builder, x: Node, order: Any, axes: tuple[int, ...], keepdims: Any) -> Node:
    if order in (None, "fro", "f"):
        return _root_of_squares(b, x, tuple(sorted(axes)), keepdims)
    only(order in (1, -1, float("inf"), float("-inf")), "norm", "ord", order, "matrix norms by singular values")
    summed, chosen = axes if order in (1, -1) else axes[::-1]
    sums = reduce(b, "sum", b.call("absolute", x), summed, True)
    extreme = reduce(b, "max" if order > 0 else "min", sums, chosen, True)
    if flag(keepdims, "norm"):
        return extreme
    return reshape(b, extreme, [d for k, d in enumerate(extreme.shape) if k not in axes])


__all__ = ["matmul"]
