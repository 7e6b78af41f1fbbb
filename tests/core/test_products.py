"""Products of matrices on the thread pool: every instruction set, layout and edge, and the same bits everywhere."""

from __future__ import annotations

import ctypes
import mmap
import sys
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


class Fenced:
    """Arrays whose last element ends where a page begins that must not be read."""

    def __init__(self) -> None:
        self.libc, self.page = ctypes.CDLL(None, use_errno=True), mmap.PAGESIZE
        self.maps: list[mmap.mmap] = []

    def array(self, values: np.ndarray) -> np.ndarray:
        room = -(-max(values.nbytes, 1) // self.page) * self.page
        pages = mmap.mmap(-1, room + self.page)
        self.maps.append(pages)
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        assert self.libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(self.page), 0) == 0
        found = np.frombuffer(pages, values.dtype, values.size, room - values.nbytes).reshape(values.shape)
        found[...] = values
        return found


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect")
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 7, 8, 10, 16, 17, 31, 33, 64, 65, 70, 133])
def test_nothing_beyond_an_array_is_read_or_written(isa, dtype, n) -> None:
    """Operands and the result end at the end of a page: rows that are read in place, packed, fetched ahead, or put."""
    fenced = Fenced()
    for m, k in ((1, 9), (2, 70), (3, 257), (5, 300), (8, 33), (8, 520), (12, 40), (14, 300), (25, 31), (110, 513), (260, 40)):
        a, b = fenced.array(draw(m, k, dtype=dtype)), fenced.array(draw(k, n, dtype=dtype))
        left, right = fenced.array(np.ascontiguousarray(a.T)), fenced.array(np.ascontiguousarray(b.T))
        expected = check(a, b, isa)
        for x, y in ((a, right.T), (left.T, b), (left.T, right.T), (a, b)):
            out = fenced.array(np.full((m, n), 7, dtype))
            multiply(x, y, out, isa)
            assert (out == expected).all(), (m, n, k)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_few_rows_by_a_large_matrix(isa, dtype) -> None:
    """Read row by row where it is large, in tiles where it is small: a row has the same bits both ways, and alone."""
    for n, k in ((1100, 300), (1111, 270), (33, 9000), (2090, 130)):
        a, b = draw(17, k, dtype=dtype), draw(k, n, dtype=dtype)
        whole = check(a, b, isa)
        wide = np.zeros((k, n + 5), dtype)
        wide[:, 2:-3] = b
        for rows in range(1, 18):
            for threads in (1, 2):
                set_threads(threads)
                assert (product(a[:rows], b, isa) == whole[:rows]).all()
                assert (product(a[:rows][::-1], wide[:, 2:-3], isa) == whole[:rows][::-1]).all()
                assert (product(np.asfortranarray(a[:rows]), b[::-1].copy()[::-1], isa) == whole[:rows]).all()
        assert (product(a[:4], b[:, 7:40], isa) == whole[:4, 7:40]).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows_by_few_columns(isa, dtype) -> None:
    """Rows are read once; the next ones are fetched meanwhile."""
    shapes = [(1003, 10, 784), (500, 16, 300), (301, 24, 520), (97, 5, 9000), (611, 32, 17), (205, 9, 3), (500, 64, 64)]
    for m, n, k in shapes:
        a, b = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype)
        whole = check(a, b, isa)
        for threads in (1, 3):
            set_threads(threads)
            assert (product(a, b, isa) == whole).all()
            assert (product(np.asfortranarray(a), b, isa) == whole).all()
        for row in (0, 11, 12, m - 1):
            assert (product(a[row : row + 1], b, isa) == whole[row]).all()
        gaps = np.zeros((m, 2 * k), dtype)
        gaps[:, :k] = a
        assert (product(gaps[:, :k], b, isa) == whole).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("m, n, k", [(12, 64, 300), (60, 100, 513), (200, 70, 260), (97, 1030, 31)])
def test_panels_that_the_first_tiles_pack(isa, m, n, k) -> None:
    """Of right operands with rows of any distance, also backward, in batches, and of NaN and infinities."""
    a, b = draw(m, k), draw(k, n)
    b[3, 5], b[k - 1, n - 1], a[1, 2] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        expected = product(a, b, isa)
        wide = np.zeros((2, k, n + 3), np.float32)
        wide[0, :, 3:], wide[1, ::-1, :n] = b, b
        twice = np.stack([b, np.roll(b, 1, axis=0)])
        for threads in (1, 3):
            set_threads(threads)
            for right in (wide[0, :, 3:], wide[1, ::-1, :n], np.asfortranarray(b)):
                np.testing.assert_array_equal(product(a, right, isa), expected)
            both = product(a, twice, isa)
            np.testing.assert_array_equal(both[0], expected)
            np.testing.assert_array_equal(both[1], product(a, twice[1], isa))
    assert np.isnan(expected[:, n - 1]).all() and np.isinf(expected[0, 5]) and np.isfinite(expected[0, 6])
