"""Products of matrices on the thread pool: every instruction set, layout and edge, and the same bits everywhere."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

from dynagraph._core._dispatch import get_threads, multiply, product_kernels, set_threads

ISAS = [isa for isa, _, _ in product_kernels()]
DTYPES = [np.float32, np.float64]
TERMS = 256  # of a block


@pytest.fixture(autouse=True)
def as_it_was():
    n = get_threads()
    yield
    set_threads(n)


def draw(*shape: int, dtype=np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def product(a: np.ndarray, b: np.ndarray, isa: str | None = None) -> np.ndarray:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.full((*batch, a.shape[-2], b.shape[-1]), 99, a.dtype)
    multiply(a, b, out, isa)
    return out


def check(a: np.ndarray, b: np.ndarray, isa: str | None = None) -> np.ndarray:
    """Against float64 or long double, with a bound by the sums of magnitudes."""
    wide = np.longdouble if a.dtype == np.float64 else np.float64
    left, right = a.astype(wide), b.astype(wide)
    found = product(a, b, isa)
    bound = (a.shape[-1] + 2) * np.finfo(found.dtype if a.dtype.kind == "f" else np.float32).eps * (abs(left) @ abs(right))
    assert (abs(found - left @ right) <= bound).all()
    return found


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_edge_of_a_tile(isa, dtype) -> None:
    sizes = [*range(1, 19), 23, 24, 31, 32, 33]
    a, b = draw(40, 37, dtype=dtype), draw(37, 40, dtype=dtype)
    whole = check(a, b, isa)
    for m in sizes:
        for n in sizes:
            assert (product(a[:m], b[:, :n], isa) == whole[:m, :n]).all(), (m, n)  # neither m nor n changes a bit
    for k in sizes:
        check(a[:, :k], b[:k], isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "m, n, k",
    [
        (150, 300, 2 * TERMS + 5),
        (1, 1200, 300),
        (1500, 1, 300),
        (2, 700, TERMS),
        (1, 77, 300),
        (500, 7, 40),
        (130, 900, 33),
        (40, 600, 300),
        (60, 70, 10 * TERMS + 9),  # threads share out the terms
        (1, 90, 5 * TERMS + 9),
        (1, 70, 3 * TERMS + 9),
        (3, 150, 300),  # two panels at a time
        (8, 300, 300),  # tiles of four rows, eight panels at a time
    ],
)
def test_same_bits_for_any_threads_and_layouts(isa, dtype, m, n, k) -> None:
    a, b = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype)
    set_threads(1)
    expected = check(a, b, isa)
    gaps = np.zeros((2 * m, 3 * k), dtype)
    gaps[::2, ::3] = a
    lefts = [a, np.asfortranarray(a), gaps[::2, ::3], a[::-1, ::-1].copy()[::-1, ::-1]]
    rights = [b, np.asfortranarray(b), np.repeat(b, 2, axis=1)[:, ::2], b]
    for threads in (1, 2, 3, 4):
        set_threads(threads)
        for left, right in zip(lefts, rights[threads - 1 :] + rights[: threads - 1]):
            assert (product(left, right, isa) == expected).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_products_go_by_chunks(dtype) -> None:
    """Of columns and of terms.  Integers are added up exactly."""
    for m, n, k in ((520, 700, 2300), (200, 9000, 520), (9000, 200, 520), (70, 60, 60_000)):
        rng = np.random.default_rng(m)
        a, b = rng.integers(-3, 4, (m, k)).astype(dtype), rng.integers(-3, 4, (k, n)).astype(dtype)
        for threads in (1, 3):
            set_threads(threads)
            assert (product(a, b) == a @ b).all()
            assert (product(np.asfortranarray(a), np.asfortranarray(b)) == a @ b).all()


@pytest.mark.parametrize("isa", ISAS)
def test_terms_are_added_in_order_by_blocks(isa) -> None:
    """As the header says: within a block one by one, in order, with or without fused multiply-add; then the blocks."""
    k = TERMS + 44
    a, b = draw(3, k), draw(k, 5)
    fused, rounded = np.zeros((3, 5), np.float32), np.zeros((3, 5), np.float32)
    for start in range(0, k, TERMS):
        f, r = np.zeros((3, 5), np.float32), np.zeros((3, 5), np.float32)
        for p in range(start, min(k, start + TERMS)):
            f = (f + np.multiply.outer(a[:, p].astype(np.float64), b[p])).astype(np.float32)  # float64 holds the product
            r = r + np.multiply.outer(a[:, p], b[p])
        fused, rounded = fused + f, rounded + r
    found = product(a, b, isa)
    assert (found == fused).all() or (found == rounded).all()


def test_zero_sizes() -> None:
    assert (product(draw(3, 0), draw(0, 4)) == 0).all()
    assert (product(draw(2, 300, 0), draw(0, 200)) == 0).all()
    for shapes in (((0, 3), (3, 4)), ((3, 4), (4, 0)), ((0, 3, 4), (4, 5))):
        assert product(draw(*shapes[0]), draw(*shapes[1])).size == 0


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("m, n", [(3, 5), (40, 150), (150, 40), (1, 70)])
def test_nan_and_infinities(isa, m, n) -> None:
    """They reach the elements that they are terms of, and no others; 0 * inf is NaN."""
    a, b = draw(m, 7), draw(7, n)
    a[0, 3], b[2, 1], b[5, 2] = np.nan, np.inf, -np.inf
    found = product(a, b, isa)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    assert (np.isnan(found) == np.isnan(expected)).all()
    assert (np.isinf(found) == np.isinf(expected)).all()
    assert (np.sign(found[np.isinf(found)]) == np.sign(expected[np.isinf(expected)])).all()
    b[5, 2], a[0, 3], a[:, 2] = 1, 0, 0
    assert np.isnan(product(a, b, isa)[:, 1]).all()


def test_sums_begin_from_positive_zero() -> None:
    found = product(np.full((2, 3), -0.0, np.float32), np.ones((3, 2), np.float32))
    assert (found == 0).all() and not np.signbit(found).any()


@pytest.mark.parametrize("shapes", [
    ((5, 8, 9), (5, 9, 7)), ((5, 8, 9), (9, 7)), ((8, 9), (5, 9, 7)), ((2, 1, 8, 9), (3, 9, 7)), ((1, 6, 200), (20, 200, 90)),
    ((12, 64, 128), (12, 128, 64)), ((2, 200, 270), (2, 270, 140)),
])  # fmt: skip
def test_batches(shapes) -> None:
    a, b = draw(*shapes[0], dtype=np.float64), draw(*shapes[1], dtype=np.float64)
    for threads in (1, 3):
        set_threads(threads)
        found = check(a, b)
        batch = found.shape[:-2]
        left, right = np.broadcast_to(a, (*batch, *a.shape[-2:])), np.broadcast_to(b, (*batch, *b.shape[-2:]))
        for index in np.ndindex(batch):
            assert (found[index] == product(left[index], right[index])).all()
    across = np.moveaxis(np.moveaxis(a, 0, -1).copy(), -1, 0)
    assert (product(across, b) == found).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves_are_added_in_single_and_rounded_once(dtype) -> None:
    for m, n, k in ((5, 7, 33), (70, 90, 300), (1, 40, 64)):
        a, b = draw(m, k).astype(dtype), draw(k, n).astype(dtype)
        for left in (a, np.asfortranarray(a)):
            for right in (b, np.asfortranarray(b)):
                expected = product(left.astype(np.float32), right.astype(np.float32)).astype(dtype)
                assert (product(left, right) == expected).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_half_and_what_rounds_to_it(dtype) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    halves, one = bits.view(dtype).reshape(-1, 1), np.ones((1, 1), dtype)
    found, nan = product(halves, one), (bits & 0x7FFF).reshape(-1, 1) > np.array(np.inf, dtype).view(np.uint16)
    with np.errstate(invalid="ignore"):
        assert (np.isnan(found) == nan).all()
        assert (found == halves)[~nan].all()
    pairs = np.stack([halves[:-1, 0], halves[1:, 0]], 1)
    some = np.full((2, 1), 0.5, dtype)  # halfway between two: ties
    with np.errstate(all="ignore"):
        middle = (pairs.astype(np.float32) * np.float32(0.5)).sum(1, dtype=np.float32, keepdims=True).astype(dtype)
    finite = np.isfinite(pairs.astype(np.float32)).all(1)
    assert (product(pairs, some)[finite] == middle[finite]).all()


def test_a_matrix_and_its_own_transpose() -> None:
    for n in (5, 70, 200):
        a = draw(n, n + 3)
        found = check(a, a.T)
        assert (found == found.T).all()


def test_callers_at_the_same_time() -> None:
    set_threads(3)
    a, b = draw(150, 200), draw(200, 250)
    expected, problems = product(a, b), []

    def call() -> None:
        for _ in range(20):
            if not (product(a, b) == expected).all():
                problems.append(1)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_what_is_refused() -> None:
    a, b, out = draw(3, 4), draw(4, 5), np.zeros((3, 5), np.float32)
    for bad in ((a, b, out.astype(np.float64)), (a.astype(np.int64), b.astype(np.int64), out.astype(np.int64))):
        with pytest.raises(TypeError, match="of one float dtype"):
            multiply(*bad)
    for bad in ((a, b.T, out), (a, b, out.T), (a[0], b, out), (a, b, out[:, ::5])):
        with pytest.raises(ValueError, match="multiply: "):
            multiply(*bad)
    with pytest.raises(ValueError, match="this processor has no such"):
        multiply(a, b, out, "such")
