"""How results lie in memory: NumPy's rules against NumPy, on arrays of random shapes and strides."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

from .harness import call, check_layout, declined, sample

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "unary": lambda x, y, z: -x,
    "binary": lambda x, y, z: x * y,
    "clip": lambda x, y, z: np.clip(x, y, z),
    "where": lambda x, y, z: np.where(x > 5, y, z),
    "copies": lambda x, y, z: [np.copy(x), x.copy(), x.copy("A"), x.astype("f4"), np.zeros_like(x), np.nan_to_num(x)],
    "orders": lambda x, y, z: [call(np.array, x, order=o) for o in "CFAK"] + [np.add(x, y, order=o) for o in "CFK"],
    "reductions": lambda x, y, z: [f(x, axis=-1) for f in (np.sum, np.max, np.mean, np.std, np.argmax, np.cumsum)],
    "kept": lambda x, y, z: [f(x, axis=0, keepdims=True) for f in (np.sum, np.any, np.var, np.argmin)],
    "two axes": lambda x, y, z: x.sum(axis=(0, -1)),
    "joined": lambda x, y, z: [np.concatenate([x, x[:1]]), np.stack([x, x + 1], 1), np.pad(x, 1), np.roll(x, 1, 0), np.tile(x, 1)],
    "products": lambda x, y, z: [x @ x.swapaxes(-1, -2), np.dot(x, x.swapaxes(-1, -2)), np.einsum("i...,i...->...i", x, x)],
    "indexed": lambda x, y, z: [x[[0, 0]], x[:, [0, 0]], x[..., [[0], [0]]], x[[0], :, [0, 0]], x.take([0], 1)],
    "flat": lambda x, y, z: [x.reshape(-1), x.reshape(-1, order="F"), x.ravel(), x.ravel("F"), x.ravel("A"), x.flatten("F")],
    "methods of ufuncs": lambda x, y, z: [
        np.add.reduceat(x, [0, 0], axis=0), np.add.reduceat(x, [0, 0], axis=-1), np.fmax.reduce(x, axis=0),
        np.subtract.reduce(x, axis=1), np.subtract.accumulate(x, axis=1), np.add.reduce(x, axis=0, where=x > 1), np.vecdot(x, x),
    ],
    "parts": lambda x, y, z: [(x * 1j).real, (x + 1j).imag + 1, np.abs(x * 1j), np.nan_to_num(x * 1j), np.round(x * 1j, 2)],
    "views": lambda x, y, z: [x.reshape(x.shape[::-1]), x.reshape(-1, x.shape[-1]), x.T.reshape(x.shape[0], -1)],
}  # fmt: skip


def strided(rng: random.Random, shape: list[int]) -> np.ndarray:
    """An array of that shape with its axes anyhow in memory: with gaps, backwards, broadcast."""
    order = rng.sample(range(len(shape)), len(shape)) if rng.random() < 0.6 else list(range(len(shape)))
    steps = [rng.choice([1, 1, 1, 2, -1]) for _ in shape]
    spread = [rng.random() < 0.1 for _ in shape]
    room = np.zeros([1 if spread[k] else abs(steps[k]) * shape[k] + rng.choice([0, 0, 1]) for k in order])
    keys = [slice(None) if s else slice(0, d * t, t) if t > 0 else slice(d - 1, None, -1) for d, t, s in zip(shape, steps, spread)]
    return np.broadcast_to(room.transpose([order.index(k) for k in range(len(shape))])[tuple(keys)], shape)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_random_layouts(name: str) -> None:
    rng, compared = random.Random(name), 0
    for _ in range(150):
        shape = [rng.choice([1, 2, 3, 4]) for _ in range(rng.randint(2, 4))]
        others = [[1 if rng.random() < 0.15 else d for d in shape][rng.choice([0, 0, 0, 1]) :] for _ in range(2)]
        compared += check_layout(FUNCTIONS[name], [strided(rng, s) for s in (shape, *others)])
    assert compared > 50


def laid(x: np.ndarray) -> tuple[Any, ...]:
    y = x.T + 1
    return y, y.strides, y.flags.c_contiguous, y.flags.f_contiguous, y.flags["FNC"], y.flags.forc, y.flags.writeable, y.flags.carray


@pytest.mark.parametrize("dynamic", [None, True])
def test_flags_and_strides_are_constants(dynamic: bool | None) -> None:
    compiled = dg.compile(laid, backend="reference", fullgraph=True, dynamic=dynamic)
    for n in (3, 4, 5):
        x = np.ones((n, 7))
        got, want = compiled(x), laid(x)
        assert got[1:] == want[1:] and got[0].strides == want[0].strides
        assert got[0].flags.owndata and got[0].base is None


def test_flags_follow_the_array_out_of_the_program() -> None:
    compiled = dg.compile(lambda x: (x.T * 2).flags, backend="reference", fullgraph=True)
    assert compiled(np.ones((2, 3))).f_contiguous


def test_strides_along_axes_of_one_element_are_declined() -> None:
    assert declined(lambda x: x.strides, sample((3, 1), "float64")) == "UNSUPPORTED_FUNCTION"


@pytest.mark.parametrize("backend", ["cpu", "numpy", "reference"])
def test_results_own_their_memory_in_any_order(backend: str) -> None:
    def f(x: np.ndarray) -> tuple[np.ndarray, ...]:
        y = np.exp(x.transpose(1, 0, 2))
        flat = (x.T + 1).reshape(-1)  # a copy
        flat[0] = 7
        whole = x.T + 2
        whole.T.reshape(-1)[1] = 9  # a view
        return y, flat, whole, whole.T

    x = np.arange(24.0).reshape(2, 3, 4)
    for got, want in zip(dg.compile(f, backend=backend, fullgraph=True)(x), f(x)):
        np.testing.assert_allclose(got, want, rtol=1e-12)
        assert got.strides == want.strides and got.flags.num == want.flags.num | 4 * got.flags.owndata


def test_whether_a_reshape_is_a_view_is_not_guessed() -> None:
    """For these sizes it is a view, for others a copy."""

    def f(x: np.ndarray) -> np.ndarray:
        x.T.reshape(4, 4)[0] = 1
        return x + 1

    compiled = dg.compile(f, backend="reference", dynamic=True)
    for shape in ((4, 4), (2, 8), (4, 4)):
        x, y = np.zeros(shape), np.zeros(shape)
        np.testing.assert_array_equal(compiled(x), f(y))
        np.testing.assert_array_equal(x, y)


def test_known_arrays_keep_their_layout() -> None:
    """What is computed at capture sees the memory order that the arrays would have."""

    def tiled() -> tuple[bool, bool]:
        a = np.zeros((3, 3), order="F")
        made = np.block([[a, a], [a, a]])
        return made.flags.f_contiguous, made.flags.c_contiguous

    assert dg.compile(tiled)() == tiled()


def test_flags_are_compared_by_numpy() -> None:
    compiled = dg.compile(lambda x: (x + 1).flags == (x * 2).flags)
    assert compiled(np.ones((2, 3))) is True


def test_copies_that_are_to_be_written_back_are_told_from_others() -> None:
    from numpy._core._multiarray_tests import npy_create_writebackifcopy, npy_resolve

    def asked(array: np.ndarray) -> tuple:
        return array.flags.writebackifcopy, array.flags["X"], array + 1

    copied = npy_create_writebackifcopy(np.arange(9).reshape(3, 3).T)
    compiled = dg.compile(asked)
    assert compiled(copied)[:2] == (True, True)
    assert compiled(np.arange(9))[:2] == (False, False)
    npy_resolve(copied)
