"""``torch.quasirandom``: Sobol's sequence, whose points fill a cube more evenly than random ones.

The direction numbers are those of S. Joe and F. Y. Kuo, "Constructing Sobol sequences with better two-dimensional projections"
(SIAM J. Sci. Comput. 30, 2008): see `sobol_directions.LICENSE.txt`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.generator import Generator
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.missing import getattr_of

_torch = NAMESPACES["torch"]
_MAXBIT = 30
_TABLE = Path(__file__).with_name("sobol_directions.npz")  # written by scripts/pack_sobol_directions.py


@functools.lru_cache(maxsize=1)
def _table() -> tuple[np.ndarray, np.ndarray]:
    """For each dimension its polynomial, and the direction numbers that it begins with (0: none any more)."""
    with np.load(_TABLE) as given:
        polynomials = np.cumsum(given["polynomials"], dtype=np.int64)
        bits = np.unpackbits(given["numbers"])
    degrees = np.maximum(1, np.floor(np.log2(polynomials)).astype(np.int64))
    numbers = np.zeros((len(polynomials), int(degrees.max())), np.int64)
    numbers[:, 0] = 1
    at = 0
    for k in range(1, numbers.shape[1]):
        rows = np.flatnonzero(degrees > k)
        part = bits[at : at + k * len(rows)].reshape(-1, k).astype(np.int64)
        numbers[rows, k] = 1 + 2 * (part << np.arange(k)).sum(axis=1)
        at += k * len(rows)
    return polynomials, numbers


def _directions(dimension: int) -> np.ndarray:
    """Each dimension's directions, as integers of 30 bits: bit 29 is a half."""
    polynomials, begun = (each[:dimension] for each in _table())
    numbers = np.zeros((dimension, _MAXBIT), np.int64)
    numbers[:, : begun.shape[1]] = begun
    numbers[0] = 1
    degrees = np.floor(np.log2(polynomials)).astype(np.int64)
    for degree in range(1, int(degrees.max(initial=0)) + 1):
        rows = np.flatnonzero(degrees == degree)
        for k in range(degree, _MAXBIT):
            made = numbers[rows, k - degree] ^ (numbers[rows, k - degree] << degree)
            for j in range(1, degree):
                made ^= np.where(polynomials[rows] >> (degree - j) & 1, numbers[rows, k - j] << j, 0)
            numbers[rows, k] = made
    return numbers << np.arange(_MAXBIT - 1, -1, -1)


def _scrambled(directions: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Directions whose bits, the highest first, are multiplied by a lower triangular matrix for each dimension."""
    matrices[:, np.arange(_MAXBIT), np.arange(_MAXBIT)] = 1
    places = np.arange(_MAXBIT - 1, -1, -1)
    bits = directions[:, :, None] >> places & 1
    return (((bits @ matrices.transpose(0, 2, 1)) & 1) << places).sum(axis=2)


class SobolEngine:
    """Points of Sobol's sequence in a cube of `dimension` dimensions (at most 21201).

    scramble: multiply and shift the points' bits at random, as Owen does; seed: of that.  PyTorch's points, scrambled ones under
    `torch.random.torch_compatible`.

    >>> from dynagraph import torch
    >>> torch.quasirandom.SobolEngine(dimension=2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = _MAXBIT
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None):
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        directions, shift = _directions(dimension), np.zeros(dimension, np.int64)
        if scramble:
            generator = None if seed is None else Generator().manual_seed(seed)
            drawn = _torch["randint"](2, (dimension, _MAXBIT), generator=generator).numpy()
            shift = (drawn << np.arange(_MAXBIT)).sum(axis=1)
            drawn = _torch["randint"](2, (dimension, _MAXBIT, _MAXBIT), generator=generator).numpy()
            directions = _scrambled(directions, np.tril(drawn))
        self.sobolstate: Tensor = _torch["from_numpy"](directions)
        self.shift: Tensor = _torch["from_numpy"](shift)
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**_MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def _next(self, n: int, first: int) -> np.ndarray:
        """As many next points as integers; `first`: the number of the first one's predecessor."""
        if n <= 0:
            return np.zeros((0, self.dimension), np.int64)
        numbers = np.arange(first, first + n)
        zeros = np.log2(~numbers & (numbers + 1)).astype(np.int64)  # the lowest bit that is 0
        steps = np.ascontiguousarray(self.sobolstate.numpy().T)[zeros]
        steps[0] ^= self.quasi.numpy()
        points = np.bitwise_xor.accumulate(steps, axis=0)
        self.quasi = _torch["from_numpy"](points[-1].copy())
        return points

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next `n` points: (n, dimension)."""
        kind = dtypes.get_default_dtype() if dtype is None else dtype
        is_first = self.num_generated == 0
        points = self._next(n - 1 if is_first else n, max(0, self.num_generated - 1))
        result = _torch["from_numpy"](points).to(kind) * 2.0**-_MAXBIT
        if is_first:
            result = _torch["cat"]((self._first_point.to(kind), result), -2)
        self.num_generated += n
        if out is None:
            return result  # type: ignore[no-any-return]
        return out.resize_as_(result).copy_(result)  # type: ignore[no-any-return]

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next 2**m points, where all that were drawn are a power of 2."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been "
                f"previously generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin anew."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out `n` points."""
        self._next(n - 1 if self.num_generated == 0 else n, max(0, self.num_generated - 1))
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}", *(["scramble=True"] if self.scramble else [])]
        return f"SobolEngine({', '.join([*parts, *([f'seed={self.seed}'] if self.seed is not None else [])])})"


__getattr__ = getattr_of(__name__)
__all__ = ["SobolEngine"]
