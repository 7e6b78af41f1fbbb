"""Products, contractions and norms through the door."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.toolchain import cpu_features
from tests import sampling
from tests.sampling import some

from .harness import DTYPES, check, check_or_declined, declined, sample

SHAPES = ((), (4,), (3, 4), (4, 3), (2, 3, 4), (2, 4, 3), (1, 4, 3), (5, 1, 3, 4))
PRODUCTS = (np.matmul, np.dot, np.inner, np.outer, np.vdot)


@pytest.mark.parametrize("function", PRODUCTS, ids=lambda f: f.__name__)
def test_products_of_shapes(function):
    for left, right in itertools.product(SHAPES, SHAPES):
        check_or_declined(function, sample(left, "float64"), sample(right, "float64", 1), exact=False)
    check(function, sample((4,), "float64"), sample((4,), "float64"), exact=False)


@pytest.mark.parametrize("function", PRODUCTS, ids=lambda f: f.__name__)
def test_products_of_dtypes(function):
    for left, right in itertools.product(DTYPES, DTYPES):
        check_or_declined(function, sample((3, 3), left), sample((3, 3), right, 1), exact=False)
    check(function, sample((3, 3), "int32"), sample((3, 3), "int64", 1))


@pytest.mark.parametrize("function", [*PRODUCTS, np.tensordot, np.kron], ids=lambda f: f.__name__)
def test_operands_that_are_lists_without_elements(function):
    """They have the dtype of the operand before them in some functions, and that of np.asarray in others."""
    for dtype in ("uint32", "bool", "float16", "complex64"):
        for shape in ((), (0,), (2, 0)):
            for empty in ((), [], [[]], [(), ()]):
                check_or_declined(lambda a: function(a, empty), sample(shape, dtype))
                check_or_declined(lambda a: function(empty, a), sample(shape, dtype))
    if function in (np.dot, np.inner, np.vdot):
        check(lambda a: function(a, ()), sample((0,), "int8"))


def test_operator_and_methods():
    x, w, v = sample((3, 4), "float64"), sample((4, 5), "float64"), sample((4,), "float64")
    check(lambda a, c: (a @ c, a.dot(c), np.dot(a, c), a[0] @ c), x, w, exact=False)
    check(lambda a, c: (a @ c, c @ a.T, c @ c, np.dot(a, 2.0), np.dot(2, a), 2 * c), x, v, exact=False)
    check(lambda a, c: a @ c, x, w, exact=False, symbolic=True)
    assert declined(lambda a: a @ 2.0, x) == "NUMPY_ERROR"
    assert declined(lambda a: a @ a, x) == "NUMPY_ERROR"


TENSORDOT = (
    (2, (3, 4, 5), (4, 5, 6)),
    (1, (3, 4), (4, 2)),
    (0, (2,), (3,)),
    (([1, 0], [0, 1]), (3, 4, 5), (4, 3, 2)),
    ((1, 0), (2, 3), (3, 4)),
    ((-1, -1), (2, 3), (4, 3)),
    (2, (3, 4), (3, 4)),
    (1, (3, 4), (5, 2)),
)


@pytest.mark.parametrize("axes,left,right", TENSORDOT, ids=str)
def test_tensordot(axes, left, right):
    check_or_declined(
        lambda a, c: np.tensordot(a, c, axes), sample(left, "float64"), sample(right, "float64"), exact=False
    )


EINSUM = (
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ij->i", (3, 4)),
    ("ij", (3, 4)),
    ("ji", (3, 4)),
    ("i,i->", (4,), (4,)),
    ("i,j->ij", (4,), (3,)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,jk->...ik", (2, 3, 4), (4, 5)),
    ("...i->...", (2, 3, 4)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ij,ij->i", (3, 4), (3, 4)),
    ("ij,i->j", (3, 4), (3,)),
    ("abc,cd->abd", (2, 3, 4), (4, 5)),
    ("ij,kj->ik", (3, 4), (5, 4)),
    ("i,ij,j", (3,), (3, 4), (4,)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("ij,kl->", (2, 3), (4, 5)),
    (" i j , j k -> k i ", (3, 4), (4, 5)),
    ("...,...", (3, 4), (4,)),
    ("ij,jk->ik", (3, 1), (4, 5)),
    (",ij->ij", (), (3, 4)),
)


@pytest.mark.parametrize("case", EINSUM, ids=lambda c: c[0])
def test_einsum(case):
    subscripts, *shapes = case
    for dtype in ("float64", "int64"):
        operands = [sample(s, dtype, k) for k, s in enumerate(shapes)]
        check(lambda *xs: np.einsum(subscripts, *xs), *operands, exact=False)


EINSUM_WRONG = ("ij,jk->im", "ij", "ij,jk->ii", "ijl,jk", "i$,jk", "ij,ik->jk", "ij,jk->...ik")


@pytest.mark.parametrize("subscripts", EINSUM_WRONG)
def test_einsum_declines_what_numpy_rejects(subscripts):
    check_or_declined(
        lambda a, c: np.einsum(subscripts, a, c), sample((3, 4), "float64"), sample((4, 5), "float64"), exact=False
    )


DIAGONALS = (
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iji->j", (3, 4, 3)),
    ("iij,j->i", (3, 3, 4), (4,)),
    ("...ii->...", (2, 3, 3)),
    ("ii,jj", (3, 3), (2, 2)),
    ("iii->i", (3, 3, 3)),
    ("ijij->ji", (2, 3, 2, 3)),
    ("iij,kj->ki", (2, 2, 3), (4, 3)),
)


@pytest.mark.parametrize("case", DIAGONALS, ids=lambda c: f"{c[0]} {c[1]}")
def test_einsum_of_diagonals(case):
    subscripts, *shapes = case
    operands = [sample(s, "float64", k) for k, s in enumerate(shapes)]
    check(lambda *xs: np.einsum(subscripts, *xs), *operands, exact=False)


@pytest.mark.parametrize("shape", [(3, 4), (1, 3)])
def test_einsum_of_a_diagonal_of_unequal_sizes_is_declined(shape):
    assert declined(lambda a: np.einsum("ii->i", a), sample(shape, "float64")) == "NUMPY_ERROR"
    with pytest.raises(ValueError):
        np.einsum("ii->i", sample(shape, "float64"))


SUBLISTS = (
    lambda a, c: np.einsum(a, [0, 1], c, [1, 2]),
    lambda a, c: np.einsum(a, [0, 1], c, [1, 2], [2, 0]),
    lambda a, c: np.einsum(a, [0, 1], c, [1, 2], []),
    lambda a, c: np.einsum(a, (3, 51), c, (51, 3)),
    lambda a, c: np.einsum(a, [0, Ellipsis], c, [Ellipsis, 1], [Ellipsis, 1]),
    lambda a, c: np.einsum(a, [30, 2], c, [2, 30]),
    lambda a, c: np.einsum(a, [0, 1]),
    lambda a, c: np.einsum(a @ c, [0, 0]),
    lambda a, c: np.einsum(a @ c, [0, 0], [0]),
)


@pytest.mark.parametrize("function", SUBLISTS)
def test_einsum_of_lists_of_indices(function):
    check(function, sample((3, 4), "float64"), sample((4, 3), "float64", 1), exact=False)


@pytest.mark.parametrize("index", [52, -1, 1.0])
def test_einsum_of_wrong_indices_is_declined(index):
    check_or_declined(lambda a: np.einsum(a, [0, index]), sample((3, 4), "float64"))


NORMS = (None, 2, 1, np.inf, -np.inf, -1, 0, 3, 0.5, 2.5, "fro", "nuc", "wrong")


@pytest.mark.parametrize("order", NORMS, ids=str)
def test_norm(order):
    for dtype in some(DTYPES, 4, order):
        for shape in ((5,), (3, 4), (2, 3, 4)):
            x = sample(shape, dtype)
            for axis in (None, 0, -1, (0, 1), (-1, 0)):
                for keepdims in (False, True):
                    check_or_declined(lambda a: np.linalg.norm(a, order, axis, keepdims), x, exact=False)


def test_norms_that_are_taken():
    x = sample((3, 4), "float32")
    check(
        lambda a: (
            np.linalg.norm(a),
            np.linalg.norm(a, axis=1),
            np.linalg.norm(a, axis=1, keepdims=True),
            np.linalg.norm(a, 1, axis=0),
        ),
        x,
        exact=False,
    )
    check(
        lambda a: (
            np.linalg.norm(a, np.inf),
            np.linalg.norm(a, 1),
            np.linalg.norm(a, "fro"),
            np.linalg.norm(a[0], np.inf),
        ),
        x,
        exact=False,
    )


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(90, 13), (13, 90), (40, 40), (2, 3)])
def test_products_of_a_matrix_with_its_transpose_are_numpys_bit_for_bit(shape: tuple[int, int], dtype: str) -> None:
    def products(x: np.ndarray) -> tuple:
        return x @ x.T, x.T @ x, np.dot(x[1:], x[1:].T), x[:, 1:].T @ x[:, 1:]

    rng = np.random.default_rng(11)
    x = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype[0] == "c" else 0)
    x = x.astype(dtype)
    for got, want in zip(dg.compile(products, backend="c")(x), products(x)):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(got, got.T)


# of which OpenBLAS takes the routines; each has other last bits
PROCESSORS = ("Haswell", "Sandybridge", "Zen", "Nehalem", "Prescott", "SkylakeX")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("processor", PROCESSORS)
def test_products_take_the_routines_that_numpys_take(processor: str) -> None:
    if processor == "SkylakeX" and not {"avx512f", "avx512vl", "avx512dq"} <= set(cpu_features().split()):
        pytest.skip("this processor has no AVX-512")
    script = Path(__file__).with_name("blas_routines.py")
    environment = {**os.environ, "OPENBLAS_CORETYPE": processor}
    one_in = 1 if sampling.all_cases else 8
    command = [sys.executable, str(script), str(one_in)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found, *differing = done.stdout.splitlines()
    assert int(found.split()[-1]) > 500 // one_in and not differing, "\n".join([found, *differing[:40]])
