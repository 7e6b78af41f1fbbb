"""Convolutions and maxima of windows in C: every instruction set and geometry, the same bits for any number of threads."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from dynagraph._core._dispatch import (
    adaptive_maxima,
    adaptive_means,
    convolve,
    get_threads,
    max_pool,
    product_kernels,
    put_places,
    set_threads,
)
from tests.sampling import examples

ISAS = [isa for isa, _, _ in product_kernels()]
DTYPES = [np.float32, np.float64]


@pytest.fixture(autouse=True)
def as_it_was():
    n = get_threads()
    yield
    set_threads(n)


def draw(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


@st.composite
def geometries(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(1, 3))
    sizes = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(n))  # noqa: E731
    kernel, stride, dilation = sizes(1, 4), sizes(1, 3), sizes(1, 3)
    padding = tuple((draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(n))
    more = sizes(0, 20 if n < 3 else 5)
    images = tuple(max(1, d * (k - 1) + 1 - sum(p) + m) for k, d, p, m in zip(kernel, dilation, padding, more))
    most = [(s + sum(p) - d * (k - 1) - 1) // t + 1 for s, k, t, d, p in zip(images, kernel, stride, dilation, padding)]
    return {
        "kernel": kernel, "stride": stride, "dilation": dilation, "padding": padding, "images": images,
        "places": tuple(draw(st.integers(max(1, m - 1), m)) for m in most),
        "groups": draw(st.sampled_from([1, 1, 2, 3])), "ins": draw(st.sampled_from([1, 1, 2, 5, 17])),
        "outs": draw(st.sampled_from([1, 1, 2, 7, 19])), "batch": draw(st.integers(0, 3)),
    }  # fmt: skip


def arrays_of(g: dict[str, Any], dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images, filters, numbers for channels, results."""
    filters = draw(g["groups"] * g["outs"], g["ins"], *g["kernel"], dtype=dtype, seed=1)
    results = draw(g["batch"], g["groups"] * g["outs"], *g["places"], dtype=dtype, seed=2)
    return draw(g["batch"], g["groups"] * g["ins"], *g["images"], dtype=dtype), filters, draw(len(filters), dtype=dtype), results


def windows_of(x: np.ndarray, g: dict[str, Any]) -> np.ndarray:
    """``(batch, groups, ins, *places, *kernel)``"""
    padded = np.pad(x, ((0, 0), (0, 0), *g["padding"]))
    extents = tuple(d * (k - 1) + 1 for d, k in zip(g["dilation"], g["kernel"]))
    found = sliding_window_view(padded, extents, axis=tuple(range(2, x.ndim)))
    steps = (slice(0, (p - 1) * s + 1, s) for s, p in zip(g["stride"], g["places"]))
    found = found[(Ellipsis, *steps, *(slice(None, None, d) for d in g["dilation"]))]
    return found.reshape(x.shape[0], g["groups"], g["ins"], *found.shape[2:])


def by_windows(g: dict[str, Any], x: np.ndarray, w: np.ndarray, results: np.ndarray) -> list[np.ndarray]:
    """The convolution and both gradients, in float64 or more."""
    wide = np.longdouble if x.dtype == np.float64 else np.float64
    n = len(g["kernel"])
    places, kernel = "xyz"[:n], "abc"[:n]
    filters = w.reshape(g["groups"], g["outs"], g["ins"], *g["kernel"]).astype(wide)
    grads = results.reshape(g["batch"], g["groups"], g["outs"], *g["places"]).astype(wide)
    windows = windows_of(x, g).astype(wide)
    out = np.einsum(f"ngi{places}{kernel},goi{kernel}->ngo{places}", windows, filters)
    by_filters = np.einsum(f"ngi{places}{kernel},ngo{places}->goi{kernel}", windows, grads)
    columns = np.einsum(f"ngo{places},goi{kernel}->ngi{places}{kernel}", grads, filters)
    whole = np.zeros((g["batch"], g["groups"], g["ins"], *(a + s + b for s, (a, b) in zip(g["images"], g["padding"]))), wide)
    for offset in itertools.product(*map(range, g["kernel"])):
        at = [slice(o * d, o * d + (p - 1) * s + 1, s) for o, d, p, s in zip(offset, g["dilation"], g["places"], g["stride"])]
        whole[(Ellipsis, *at)] += columns[(Ellipsis, *offset)]
    by_images = whole[(Ellipsis, *(slice(a, a + s) for s, (a, _) in zip(g["images"], g["padding"])))]
    return [out.reshape(results.shape), by_images.reshape(x.shape), by_filters.reshape(w.shape)]


def by_kernels(g: dict[str, Any], x: np.ndarray, w: np.ndarray, results: np.ndarray, isa: str | None = None) -> list[np.ndarray]:
    about = (g["groups"], g["stride"], g["dilation"], g["padding"])
    return [
        convolve(0, x, w, None, *about, g["places"], isa),
        convolve(1, results, w, None, *about, g["images"], isa),
        convolve(2, x, results, None, *about, g["kernel"], isa),
    ]


@given(geometries(), st.sampled_from(DTYPES))
@settings(max_examples=examples(60), deadline=None)
def test_any_geometry(g: dict[str, Any], dtype: Any) -> None:
    x, w, bias, results = arrays_of(g, dtype)
    wanted = by_windows(g, x, w, results)
    for isa in ISAS:
        for found, want in zip(by_kernels(g, x, w, results, isa), wanted):
            assert found.dtype == dtype
            terms = max(1, math.prod(g["kernel"]) * max(g["ins"], g["outs"]), g["batch"] * math.prod(g["places"]))
            np.testing.assert_allclose(found, want.astype(dtype), rtol=0, atol=60 * math.sqrt(terms) * np.finfo(dtype).eps)
    out = convolve(0, x, w, None, g["groups"], g["stride"], g["dilation"], g["padding"], g["places"])
    with_bias = convolve(0, x, w, bias, g["groups"], g["stride"], g["dilation"], g["padding"], g["places"])
    assert (with_bias == out + bias.reshape(-1, *(1,) * len(g["kernel"]))).all()


LARGE: list[dict[str, Any]] = [
    {"kernel": (3, 3), "stride": (1, 1), "padding": ((1, 1), (1, 1)), "images": (30, 33), "groups": 1, "ins": 33, "outs": 40},
    {"kernel": (7, 7), "stride": (2, 2), "padding": ((3, 3), (3, 3)), "images": (50, 41), "groups": 1, "ins": 3, "outs": 24},
    {"kernel": (3, 3), "stride": (2, 1), "padding": ((1, 1), (1, 1)), "images": (30, 33), "groups": 48, "ins": 1, "outs": 1},
    {"kernel": (1, 1), "stride": (1, 1), "padding": ((0, 0), (0, 0)), "images": (13, 17), "groups": 1, "ins": 300, "outs": 31},
    {"kernel": (2, 2), "stride": (1, 1), "padding": ((0, 0), (1, 0)), "images": (60, 60), "groups": 1, "ins": 2, "outs": 3},
    {"kernel": (3, 3), "stride": (1, 1), "padding": ((1, 1), (1, 1)), "images": (9, 32), "groups": 2, "ins": 35, "outs": 13},
    {"kernel": (5, 3), "stride": (1, 2), "padding": ((2, 2), (1, 1)), "images": (8, 64), "groups": 1, "ins": 19, "outs": 7},
    # few places and many channels, whose rows are divided between threads
    {"kernel": (3, 3), "stride": (1, 1), "padding": ((1, 1), (1, 1)), "images": (2, 2), "groups": 1, "ins": 90, "outs": 330},
    {"kernel": (3, 3), "stride": (2, 2), "padding": ((1, 1), (1, 1)), "images": (4, 5), "groups": 1, "ins": 210, "outs": 131},
    {"kernel": (3, 3), "stride": (1, 1), "padding": ((1, 1), (1, 1)), "images": (2, 16), "groups": 1, "ins": 130, "outs": 140},
    {"kernel": (1, 1), "stride": (1, 1), "padding": ((0, 0), (0, 0)), "images": (3, 3), "groups": 3, "ins": 128, "outs": 200},
]


@pytest.mark.parametrize("number", range(len(LARGE)))
def test_any_number_of_threads_gives_the_same_bits(number: int) -> None:
    g = {"dilation": (1, 1), "batch": 3, **LARGE[number]}
    g["places"] = tuple((s + sum(p) - k) // t + 1 for s, p, k, t in zip(g["images"], g["padding"], g["kernel"], g["stride"]))
    x, w, _, results = arrays_of(g, np.float32)
    found = []
    for n in range(1, 5):
        set_threads(n)
        found.append(by_kernels(g, x, w, results))
    for others in found[1:]:
        assert all((a == b).all() for a, b in zip(found[0], others))
    for one, want in zip(found[0], by_windows(g, x, w, results)):
        np.testing.assert_allclose(one, want, rtol=1e-4, atol=2e-3)


def test_images_do_not_change_each_other() -> None:
    """Neither the batch nor the place in it changes a bit."""
    x, w = draw(5, 4, 9, 7, dtype=np.float32), draw(6, 4, 3, 3, dtype=np.float32)
    about = (None, 1, (1, 1), (1, 1), ((1, 1), (1, 1)), (9, 7))
    whole = convolve(0, x, w, *about)
    assert all((convolve(0, x[k : k + 1], w, *about) == whole[k : k + 1]).all() for k in range(5))


@pytest.mark.parametrize("groups", [1, 4])
def test_nan_stays_where_windows_hold_it(groups: int) -> None:
    x, w = draw(1, 4, 6, 11), draw(4, 4 // groups, 3, 3)
    x[0, 1, 2, 10] = np.nan
    about = (groups, (1, 1), (1, 1), ((1, 1), (1, 1)))
    is_nan = np.isnan(convolve(0, x, w, None, *about, (6, 11)))
    want = np.zeros((4, 6, 11), bool)
    want[slice(None) if groups == 1 else 1, 1:4, 9:11] = True
    assert (is_nan[0] == want).all()
    g = draw(1, 4, 6, 11)
    g[0, :, 2, 10] = 0
    by_filters = convolve(2, x, g, None, *about, (3, 3))
    assert np.isnan(by_filters).any(axis=0 if groups == 1 else 1).sum() == 6  # no window has it first in a row


def test_arrays_that_do_not_lie_in_order() -> None:
    x, w = draw(2, 9, 8, 3).transpose(0, 3, 1, 2), draw(3, 3, 4, 5).transpose(2, 3, 0, 1)[:, :3]
    about = (None, 1, (1, 1), (1, 1), ((0, 0), (0, 0)), (7, 6))
    assert (convolve(0, x, w, *about) == convolve(0, x.copy(), w.copy(), *about)).all()


def test_what_does_not_fit_is_refused() -> None:
    x, w = draw(1, 4, 5, 5), draw(2, 4, 3, 3)
    good = (1, (1, 1), (1, 1), ((0, 0), (0, 0)), (3, 3))
    convolve(0, x, w, None, *good)
    for wrong in [
        (0, x, w[:, :3], None, *good), (0, x, w[:, :, 0], None, *good), (0, x, w, draw(3), *good),
        (0, x.astype(int), w, None, *good),
        (3, x, w, None, *good), (0, x, w, None, 3, *good[1:]), (0, x, w, None, 1, (0, 1), *good[2:]),
        (0, x, w, None, *good[:4], (4, 3)), (0, x, w, None, *good[:4], (3,)), (0, x, w, None, *good, "none"),
        (1, x, w, None, *good[:4], (7, 7)), (2, x, draw(2, 2, 3, 3), None, *good),
    ]:  # fmt: skip
        with pytest.raises((TypeError, ValueError), match="convolve"):
            convolve(*wrong)


# -- maxima -----------------------------------------------------------------------------------------------------------


@given(geometries(), st.sampled_from(DTYPES), st.sampled_from(["plain", "equal", "nan", "inf"]))
@settings(max_examples=examples(60), deadline=None)
def test_maxima_of_windows(g: dict[str, Any], dtype: Any, kind: str) -> None:
    check_maxima(g, dtype, kind)


@pytest.mark.parametrize("kind", ["plain", "equal", "nan", "inf"])
@pytest.mark.parametrize(
    "kernel, stride", [((2, 2), (2, 2)), ((1, 2), (1, 2)), ((3, 2), (1, 3)), ((2, 1), (2, 1)), ((2, 2, 3), (2, 1, 4))]
)
def test_maxima_of_windows_that_divide_rows(kernel: tuple[int, ...], stride: tuple[int, ...], kind: str) -> None:
    images = (*(3, 6, 6)[: len(kernel) - 1], 12)
    g = {"kernel": kernel, "stride": stride, "dilation": (1,) * len(kernel), "padding": ((0, 0),) * len(kernel), "images": images}
    for batch in (1, 3):
        check_maxima(g | {"batch": batch}, np.float32, kind)


def check_maxima(g: dict[str, Any], dtype: Any, kind: str) -> None:
    before = tuple(min(a, d * (k - 1) // 2) for (a, _), d, k in zip(g["padding"], g["dilation"], g["kernel"]))
    about = list(zip(g["images"], g["kernel"], g["stride"], before, g["dilation"]))
    places = tuple(max(1, (s - 1 + a - d * (k - 1)) // t + 1) for s, k, t, a, d in about)
    x = draw(g["batch"], 2, *g["images"], dtype=dtype)
    chosen = draw(*x.shape, seed=3) < -0.5
    x = np.round(x) if kind == "equal" else x if kind == "plain" else np.where(chosen, np.nan if kind == "nan" else -np.inf, x)
    x = x.astype(dtype)
    values, where = max_pool(x, g["kernel"], g["stride"], before, g["dilation"], places)
    for plane in np.ndindex(*x.shape[:2]):
        for place in np.ndindex(*places):
            axes = [
                [i for j in range(k) if 0 <= (i := p * t - a + j * d) < s] for p, (s, k, t, a, d) in zip(place, about)
            ]
            best, at = -np.inf, -1
            for index in itertools.product(*axes):
                other = x[(*plane, *index)]
                if at < 0 or other > best or np.isnan(other):
                    best, at = other, np.ravel_multi_index(index, g["images"])
            np.testing.assert_equal(values[(*plane, *place)], best)
            assert where[(*plane, *place)] == at
    if (where >= 0).all():
        grads = draw(*values.shape, dtype=dtype, seed=4)
        wanted = np.zeros((*x.shape[:2], math.prod(g["images"])), dtype)
        for plane in np.ndindex(*x.shape[:2]):
            np.add.at(wanted[plane], where[plane].ravel(), grads[plane].ravel())
        assert (put_places(grads, where, g["images"]) == wanted.reshape(x.shape)).all()


@pytest.mark.parametrize("stride", [9, 2**32, 2**40, 2**62])
def test_strides_beyond_the_images(stride: int) -> None:
    """One window has no next one, so its distance does not matter."""
    x, w, results = draw(2, 3, 5, 6), draw(4, 3, 3, 3, seed=1), draw(2, 4, 1, 1, seed=2)
    about = {"groups": 1, "dilation": (1, 1), "padding": ((0, 0), (0, 0)), "places": (1, 1), "images": (5, 6), "kernel": (3, 3)}
    wanted = by_kernels({**about, "stride": (7, 7)}, x, w, results)
    for found, want in zip(by_kernels({**about, "stride": (stride, stride)}, x, w, results), wanted):
        np.testing.assert_array_equal(found, want)
    wanted = max_pool(x, (2, 3), (7, 7), (1, 1), (2, 2), (1, 1))
    for found, want in zip(max_pool(x, (2, 3), (stride, stride), (1, 1), (2, 2), (1, 1)), wanted):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("way", [2**40, 2**61, 2**62, 2**63 - 1])
def test_windows_that_reach_far_beyond_images(way: int, channels: int) -> None:
    """They may need more memory than there is, or give what the middle of the filter makes; nothing overflows."""
    for n in (1, 2):
        x, w = np.ones((1, channels, *(4,) * n), "f"), np.ones((channels, channels, *(3,) * n), "f")
        try:
            out = convolve(0, x, w, None, 1, (1,) * n, (way,) * n, ((way, way),) * n, (4,) * n)
        except MemoryError:
            continue
        np.testing.assert_array_equal(out, x * channels)


@pytest.mark.parametrize("size", [2**20, 2**31, 2**62 - 1])
def test_windows_of_maxima_that_are_larger_than_arrays(size: int) -> None:
    x = draw(2, 4, 5)
    values, places = max_pool(x, (size, size), (3, size), (size // 2, size // 2), (1, 1), (1, 1))
    np.testing.assert_array_equal(values, x.max((1, 2), keepdims=True))
    np.testing.assert_array_equal(places.ravel(), x.reshape(2, -1).argmax(1))
    values, places = max_pool(x[:, :, :1], (1, 2), (1, 1), (0, size), (1, 1), (4, 1))  # all is border
    assert (values == -np.inf).all() and (places == -1).all()


@pytest.mark.parametrize("sizes", [(2**32, 2**32, 1), (2**62, 4, 1), (2**21, 2**21, 2**22)])
def test_planes_whose_size_has_more_than_64_bits(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="not in planes of"):
        adaptive_maxima(np.zeros(16), sizes, (1, 1, 1))
    with pytest.raises(ValueError, match="not in rows of"):
        adaptive_means(np.zeros(16), sizes[0], 2**63 // sizes[0] * 2, 1)


def test_places_beyond_the_array_are_refused() -> None:
    with pytest.raises(IndexError, match="a place beyond the array"):
        put_places(np.ones((1, 2)), np.array([[0, 4]]), (4,))
