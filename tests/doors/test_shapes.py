"""Movement through the door: shapes, copies and views as NumPy has them, and basic indexing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dynagraph.doors.numpy.indexing import slice_range
from dynagraph.ir.ops import view_of

from .harness import call, check, check_or_declined, declined, sample, trace_through_door

X = sample((2, 3, 4), "float64")
ONE = sample((3, 1, 4, 1), "float32")
MATRIX = sample((3, 4), "int32")
VECTOR = sample((6,), "float32")
ZERO_D = sample((), "float64")

CASES = {
    "reshape": lambda x: (
        np.reshape(x, (4, 6)),
        np.reshape(x, -1),
        x.reshape(3, -1),
        x.reshape((2, 2, 6)),
        x.reshape([24]),
        x.reshape(-2, 12),
        x.reshape(24, order="C"),
    ),
    "ravel": lambda x: (np.ravel(x), x.ravel(), x.flatten(), x.T.ravel(), x.ravel("C")),
    "transpose": lambda x: (
        x.T,
        x.transpose(),
        x.transpose(1, 0, 2),
        x.transpose((2, 0, 1)),
        np.transpose(x, (0, 2, 1)),
        x.transpose(None),
        np.permute_dims(x, (-1, 0, 1)),
    ),
    "swapaxes": lambda x: (np.swapaxes(x, 0, -1), x.swapaxes(1, 2), x.mT, np.matrix_transpose(x)),
    "moveaxis": lambda x: (
        np.moveaxis(x, 0, -1),
        np.moveaxis(x, [0, 1], [-1, 0]),
        np.rollaxis(x, 2),
        np.rollaxis(x, 0, 3),
        np.rollaxis(x, -1, 1),
    ),
    "expand_dims": lambda x: (np.expand_dims(x, 0), np.expand_dims(x, (0, -1)), np.expand_dims(x, axis=2)),
    "atleast": lambda x: (
        np.atleast_1d(x),
        np.atleast_2d(x[0, 0]),
        np.atleast_3d(x[0]),
        np.atleast_3d(x[0, 0]),
        np.atleast_1d(x, x[0]),
    ),
    "broadcast": lambda x: (
        np.broadcast_to(x, (5, 2, 3, 4)),
        np.broadcast_to(x[:, :1], (2, 3, 4)),
        np.broadcast_arrays(x, x[0], x[:, :, :1]),
    ),
    "concatenate": lambda x: (
        np.concatenate([x, x]),
        np.concatenate((x, x[:, :1]), axis=1),
        np.concatenate([x, x], axis=None),
        np.concat([x, x], -1),
        np.concatenate([x, x.astype("float32")]),
        np.concatenate([x, x], dtype="float32"),
        np.concatenate(x),
    ),
    "stack": lambda x: (
        np.stack([x, x]),
        np.stack((x, x), axis=-1),
        np.vstack([x[0], x[1]]),
        np.hstack([x, x]),
        np.dstack([x[0], x[1]]),
        np.vstack([x[0, 0], x[1, 0]]),
        np.hstack([x[0, 0], x[1, 0]]),
        np.column_stack([x[0, :, 0], x[1]]),
        np.stack(x),
    ),
    "append": lambda x: (np.append(x, x[0]), np.append(x, x, axis=1), np.append(x, 3.0), np.append(x, [1, 2])),
    "split": lambda x: (
        np.split(x, 2),
        np.split(x, 3, axis=1),
        np.split(x, [1, 3], axis=2),
        np.array_split(x, 3, axis=2),
        np.hsplit(x, 3),
        np.vsplit(x, 2),
        np.dsplit(x, [1]),
        np.split(x, [5, -1], axis=-1),
        np.array_split(x, 5),
    ),
    "unstack": lambda x: (np.unstack(x), np.unstack(x, axis=-1)),
    "flip": lambda x: (np.flip(x), np.flip(x, 0), np.flip(x, (0, -1)), np.flipud(x), np.fliplr(x)),
    "rot90": lambda x: (np.rot90(x), np.rot90(x, 2), np.rot90(x, -1, (1, 2)), np.rot90(x, 4), np.rot90(x, 3, (2, 0))),
    "roll": lambda x: (
        np.roll(x, 1),
        np.roll(x, -5),
        np.roll(x, 1, axis=2),
        np.roll(x, (1, 2), axis=(0, 1)),
        np.roll(x, 1, axis=(0, 2)),
        np.roll(x, 100, 0),
    ),
    "repeat": lambda x: (np.repeat(x, 2), np.repeat(x, 3, axis=1), x.repeat(2, axis=-1), np.repeat(x, 0, axis=0)),
    "repeat by counts": lambda x: (
        np.repeat(x, [2] + [1] * (x.shape[0] - 1), axis=0),
        np.repeat(x, (0,) * (x.shape[-1] - 1) + (3,), axis=-1),
        np.repeat(x, [2]),
        x.repeat([1] * x.size),
    ),
    "tile": lambda x: (
        np.tile(x, 2),
        np.tile(x, (2, 1, 3)),
        np.tile(x, (2, 1, 1, 1)),
        np.tile(x, 1),
        np.tile(x, ()),
        np.tile(x, [2, 2]),
    ),
    "pad": lambda x: (
        np.pad(x, 1),
        np.pad(x, (1, 2)),
        np.pad(x, ((0, 1), (2, 0), (1, 1))),
        np.pad(x, 1, constant_values=5),
        np.pad(x, ((1, 2),)),
        np.pad(x, 1, "constant", constant_values=-1.5),
        np.pad(x, [[1], [0], [2]]),
    ),
    "pad_modes": lambda x: (
        np.pad(x, 2, mode="edge"),
        np.pad(x, (1, 0), mode="reflect"),
        np.pad(x, (1, 2), mode="symmetric"),
        np.pad(x, (0, 2), mode="wrap"),
    ),
    "astype": lambda x: (
        x.astype("float32"),
        x.astype(np.int64),
        x.astype(bool),
        x.astype(float),
        x.astype("float32", copy=False),
    ),
    "copy": lambda x: (
        x.copy(),
        np.copy(x),
        np.positive(x),
        call(np.ascontiguousarray, x),
        call(np.ascontiguousarray, x.T),
    ),
    "questions": lambda x: (
        np.shape(x),
        np.ndim(x),
        np.size(x),
        np.size(x, 1),
        x.shape,
        x.ndim,
        x.size,
        x.dtype,
        x.itemsize,
        x.nbytes,
        len(x),
        np.result_type(x, np.float32),
        np.isscalar(x),
        np.isrealobj(x),
        np.iscomplexobj(x),
    ),
    "real": lambda x: (x.real, x.conj(), np.conjugate(x)),
    "matrices": lambda x: (
        np.tril(x),
        np.triu(x, 1),
        np.tril(x, -1),
        np.diagonal(x[0]),
        np.trace(x[0]),
        x[1].trace(),
        np.diag(x[0, 0]),
        np.diag(x[0]),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_movement(case):
    check(CASES[case], X)


@pytest.mark.parametrize(
    "case", sorted(CASES.keys() - {"concatenate", "stack", "atleast", "split", "unstack", "pad_modes"})
)
def test_movement_of_integers(case):
    check(CASES[case], X.astype("int32"))


SYMBOLIC = (
    "ravel",
    "transpose",
    "swapaxes",
    "moveaxis",
    "expand_dims",
    "flip",
    "roll",
    "repeat",
    "tile",
    "pad",
    "copy",
    "questions",
    "rot90",
    "append",
)


@pytest.mark.parametrize("case", SYMBOLIC)
def test_movement_of_symbolic_sizes(case):
    check(CASES[case], sample((5, 3, 4), "float64"), symbolic=True)


SQUEEZE = (
    lambda x: x.squeeze(),
    lambda x: np.squeeze(x, 1),
    lambda x: np.squeeze(x, axis=(1, -1)),
    lambda x: x.squeeze(-1),
)


@pytest.mark.parametrize("function", SQUEEZE)
def test_squeeze(function):
    check(function, ONE)


def test_zero_dimensional_operands_keep_their_kind():
    for x in (ZERO_D, ZERO_D[()]):
        check(
            lambda a: (
                np.reshape(a, ()),
                np.squeeze(a),
                a.T,
                a.copy(),
                np.copy(a),
                np.transpose(a),
                a.astype("float32"),
            ),
            x,
        )
        check(lambda a: (np.ravel(a), np.atleast_1d(a), np.atleast_2d(a), np.atleast_3d(a), np.expand_dims(a, 0)), x)
        check(
            lambda a: (
                a[()],
                a[None],
                np.roll(a, 1),
                np.repeat(a, 3),
                np.tile(a, 2),
                np.stack([a, a]),
                np.hstack([a, a]),
            ),
            x,
        )
        check(lambda a: np.broadcast_to(a, ()), x)
    check(lambda a: (a.reshape(()), np.squeeze(a)), sample((1,), "float64"))


WRONG = {
    "reshape": lambda x: x.reshape(5, -1),
    "reshape-two": lambda x: x.reshape(-1, -1),
    "transpose": lambda x: x.transpose(0, 1),
    "transpose-twice": lambda x: x.transpose(0, 0, 1),
    "swapaxes": lambda x: x.swapaxes(0, 3),
    "squeeze": lambda x: x.squeeze(0),
    "expand_dims": lambda x: np.expand_dims(x, 7),
    "concatenate": lambda x: np.concatenate([x, x[0]]),
    "concatenate-sizes": lambda x: np.concatenate([x, x[:, :2]]),
    "concatenate-nothing": lambda x: call(np.concatenate, []),
    "stack": lambda x: np.stack([x, x[:1]]),
    "split": lambda x: np.split(x, 2, axis=1),
    "broadcast": lambda x: np.broadcast_to(x, (3, 4)),
    "tile": lambda x: np.tile(x, -1),
    "repeat": lambda x: np.repeat(x, -1),
    "pad": lambda x: np.pad(x, -1),
    "moveaxis": lambda x: np.moveaxis(x, [0, 1], [0]),
    "keyword": lambda x: call(np.reshape, x, (24,), wrong=1),
    "method-keyword": lambda x: x.sum(axes=1),
    "axis-type": lambda x: np.sum(x, axis="a"),
    "too-many": lambda x: x[0, 0, 0, 0],
    "out-of-range": lambda x: x[2],
    "zero-step": lambda x: x[::0],
    "two-ellipses": lambda x: x[..., ...],
    "float-index": lambda x: x[1.0],
    "add": lambda x: x + np.ones((2,)).tolist(),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_numpy_rejects_is_declined(case):
    with pytest.raises((TypeError, ValueError, IndexError)):
        WRONG[case](X)
    check_or_declined(WRONG[case], X)


DECLINED = {
    "two masks": ("DATA_DEPENDENT", lambda x: x[x[:, 0, 0] > 0, x[0, :, 0] > 0]),
    "ellipsis": ("UNSUPPORTED_INDEX", lambda x: x[..., 0, 0, 0]),
    "item": ("DATA_DEPENDENT", lambda x: x.item(0)),
    "tolist": ("DATA_DEPENDENT", lambda x: x.tolist()),
    "fill": ("IN_PLACE_WRITE", lambda x: x.fill(0)),
    "sort": ("IN_PLACE_WRITE", lambda x: x.sort()),
    "order": ("UNSUPPORTED_ARGUMENT", lambda x: x[:, ::2].ravel("K")),
    "sizes": ("DATA_DEPENDENT", lambda x: np.reshape(x, (x.argmax(), -1))),
    "longdouble": ("UNSUPPORTED_DTYPE", lambda x: x.astype(np.longdouble)),
    "imaginary part": ("UNSUPPORTED_DTYPE", lambda x: x.astype(complex).astype(float)),  # NumPy warns
    "strides": ("UNSUPPORTED_FUNCTION", lambda x: x[:1].strides),
}


@pytest.mark.parametrize("case", DECLINED)
def test_what_is_declined(case):
    reason, function = DECLINED[case]
    assert declined(function, X) == reason


VIEWS = (
    lambda x: x.reshape(6, 4),
    lambda x: x.T,
    lambda x: x[1:],
    lambda x: x[0],
    lambda x: x[:, None],
    lambda x: x[..., ::-1],
    lambda x: x[...],
    lambda x: np.ravel(x),
    lambda x: np.flip(x),
    lambda x: np.broadcast_to(x, (2, 2, 3, 4)),
    lambda x: np.split(x, 2)[1],
    lambda x: x[:1].squeeze(),
    lambda x: np.expand_dims(x, 0),
    lambda x: np.rot90(x),
    lambda x: np.diagonal(x[0]),
    lambda x: x.swapaxes(0, 1)[1:],
    lambda x: x.T.reshape(4, 3, 2),
)
COPIES = (
    lambda x: x.flatten(),
    lambda x: x.copy(),
    lambda x: x.astype(float),
    lambda x: np.tile(x, 1),
    lambda x: np.roll(x, 1, 0),
    lambda x: +x,
    lambda x: np.concatenate([x]),
    lambda x: x.T.ravel(),
    lambda x: np.pad(x, 0),
    lambda x: np.repeat(x, 1, 0),
    lambda x: call(np.ascontiguousarray, x.T),
    lambda x: x.clip(None, None),
    lambda x: np.nan_to_num(x),
    lambda x: np.tril(x),
    lambda x: np.meshgrid(x[0, 0], x[0, 0])[0],
)


@pytest.mark.parametrize("function", VIEWS + COPIES)
def test_a_result_is_a_view_where_numpys_is(function):
    expected = np.may_share_memory(function(X), X)
    assert expected == (function in VIEWS)
    _trace, result, _env = trace_through_door(function, [X])
    found = view_of(result._node)
    assert (found is not None) == expected
    if found is not None:
        base, strided = found
        assert base.kind == "placeholder"
        assert [s * X.itemsize for k, s in enumerate(strided.strides) if strided.shape[k] != 1] == [
            s for k, s in enumerate(function(X).strides) if strided.shape[k] != 1
        ]


def test_the_same_array_comes_back_itself():
    same = (lambda x: x.astype("float64", copy=False), lambda x: x.real, lambda x: x.conj(), lambda x: x.squeeze())
    for function in (np.atleast_1d, *same):
        _, result, _ = trace_through_door(function, [X])
        assert result._node.kind == "placeholder"


# -- properties -------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_basic_indexing(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5))
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    x = np.arange(np.prod(shape), dtype="int64").reshape(shape)
    reason = check_or_declined(lambda a: a[index], x)
    zero_d_view = isinstance(x[index], np.ndarray) and x[index].ndim == 0
    assert (reason == "UNSUPPORTED_INDEX") == zero_d_view


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_basic_indexing_of_symbolic_sizes(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=2, max_side=5))
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=False))
    check(lambda a: a[index], np.arange(np.prod(shape), dtype="int64").reshape(shape), symbolic=True)


@given(st.slices(7), st.integers(0, 7))
def test_slice_range_is_pythons(s, size):
    start, step, count = slice_range(s, size)
    assert [start + step * i for i in range(count)] == list(range(size))[s]


@settings(max_examples=100, deadline=None)
@given(shapes=hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4))
def test_broadcasting(shapes):
    left, right = (sample(s, "float64") for s in shapes.input_shapes)
    check(lambda a, c: (a + c, np.broadcast_arrays(a, c)), left, right)


@settings(max_examples=100, deadline=None)
@given(left=hnp.array_shapes(max_dims=3, max_side=3), right=hnp.array_shapes(max_dims=3, max_side=3))
def test_shapes_that_do_not_broadcast_are_declined(left, right):
    check_or_declined(np.add, sample(left, "float64"), sample(right, "float64"))


def test_numpy_integers_index():
    check(lambda x: (x[np.int64(1)], x[:, np.int32(-1)], x[: np.int64(1)]), X)


def test_slices_of_symbolic_sizes():
    check(lambda x: x[: x.shape[0] // 2], sample((7, 3), "float64"), symbolic=True)
    check(lambda x: x[x.shape[0] - 1], sample((7, 3), "float64"), symbolic=True)
    check(lambda x: x[1:] - x[:-1], sample((7, 3), "float64"), symbolic=True)
    check(lambda x: x[::-2], sample((7, 3), "float64"), symbolic=True)
