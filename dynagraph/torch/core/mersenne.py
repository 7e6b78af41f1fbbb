"""PyTorch's stream of random numbers on the CPU: MT19937, and what PyTorch makes of its words, bit for bit.

In use under ``torch.random.torch_compatible(True)``.  Normal float32 numbers, from 16 on, are those of PyTorch's kernel for AVX2:
its logarithms and sines are Cephes' polynomials, with fused multiplications and additions.  What PyTorch leaves to MKL on Intel
CPUs (`bernoulli_` of a number, `exponential_`, dropout) is as on other CPUs.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

STATE_BYTES = 5056
_HEAD = "<QiiQ"  # seed, words left + 1, seeded, next
_TAIL = "<dddiifB3x"  # three normal numbers of which the second may be in use, whether it is; the same of a float
_LENGTH = 624
_TWO_PI = 2 * math.pi


class Mersenne:
    """One stream: its words, and the second of a pair of normal numbers that is kept for the next call."""

    def __init__(self, seed: int):
        self.restart(seed)

    def restart(self, seed: int) -> None:
        """Begin anew, from the lower 32 bits of a seed."""
        self.seed = seed
        self._bits = np.random.MT19937()
        self._bits._legacy_seeding(seed & 0xFFFFFFFF)
        self._is_fresh = True
        self._kept: float | None = None

    # -- words --
    def words(self, count: int) -> np.ndarray:
        """32-bit words, as uint64."""
        if count:
            self._is_fresh = False
        return np.asarray(self._bits.random_raw(count))

    def long_words(self, count: int) -> np.ndarray:
        """64-bit words: the first of two is the upper half."""
        pairs = self.words(2 * count)
        return (pairs[0::2] << np.uint64(32)) | pairs[1::2]

    # -- state --
    def state(self) -> bytes:
        """As ``torch.get_rng_state()`` gives it."""
        inner = self._bits.state["state"]
        position = int(inner["pos"])
        following = 0 if self._is_fresh else position
        head = struct.pack(_HEAD, self.seed & 0xFFFFFFFFFFFFFFFF, _LENGTH - position + 1, 1, following)
        kept = self._kept
        tail = struct.pack(_TAIL, 0.0, kept or 0.0, 0.0, kept is not None, 0, 0.0, 0)
        return head + inner["key"].astype("<u8").tobytes() + tail

    def set_state(self, state: bytes) -> None:
        """Go on from a state."""
        seed, left, seeded, following = struct.unpack_from(_HEAD, state)
        key = np.frombuffer(state, "<u8", _LENGTH, struct.calcsize(_HEAD))
        tail = struct.unpack_from(_TAIL, state, struct.calcsize(_HEAD) + 8 * _LENGTH)
        if not seeded or not 0 < left <= _LENGTH + 1:
            raise RuntimeError("RNG state is wrong: it is no state of MT19937")
        self.seed, self._kept = seed, tail[1] if tail[3] else None
        position = _LENGTH if left == 1 else following
        self._is_fresh = left == 1 and following == 0
        inner: Any = {"key": key.astype(np.uint32), "pos": position}
        self._bits.state = {"bit_generator": "MT19937", "state": inner}

    # -- numbers --
    def uniform(self, shape: tuple[int, ...], dtype: np.dtype, low: float = 0.0, high: float = 1.0) -> np.ndarray:
        """Uniform in [low, high): of 24 bits of a word, or 53 of two; halves are rounded from float32."""
        count = math.prod(shape)
        if dtype.itemsize == 8:
            part = (self.long_words(count) & np.uint64((1 << 53) - 1)) * 2.0**-53
            found = part if (low, high) == (0.0, 1.0) else _fused_double(part, high - low, low)
            return np.where(found == high, low, found).reshape(shape)
        part = self._single(count)
        first, last = np.float32(low), np.float32(high)
        made = part if (low, high) == (0.0, 1.0) else _fused(part, last - first, first)
        found = made.astype(dtype)
        return np.where(found == last.astype(dtype), first.astype(dtype), found).reshape(shape)

    def _single(self, count: int) -> np.ndarray:
        return (self.words(count) & np.uint64(0xFFFFFF)).astype(np.float32) * np.float32(2.0**-24)

    def normal(self, shape: tuple[int, ...], dtype: np.dtype, mean: float = 0.0, std: float = 1.0) -> np.ndarray:
        """Normal numbers: one by one below 16 of them, in blocks of 16 from there on, the last of which is drawn again."""
        count = math.prod(shape)
        if count < 16:
            made = np.array([self.one_normal() for _ in range(count)], np.float64)
            return (made if (mean, std) == (0.0, 1.0) else _fused_double(made, std, mean)).astype(dtype).reshape(shape)
        whole = count - count % 16
        part = self._parts(whole if dtype.itemsize == 2 else count, dtype)
        found = np.empty(count, part.dtype)
        found[:whole] = _blocks(part[:whole], dtype, mean, std)
        if count % 16:
            found[-16:] = _blocks(self._parts(16, dtype), dtype, mean, std)
        return found.astype(dtype).reshape(shape)

    def _parts(self, count: int, dtype: np.dtype) -> np.ndarray:
        return self.uniform((count,), dtype) if dtype.itemsize == 8 else self._single(count)

    def one_normal(self) -> float:
        """One normal number in double precision: the cosine's, and in the next call the sine's."""
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        angle, size = self.uniform((2,), np.dtype(np.float64)).tolist()
        radius = math.sqrt(-2.0 * math.log1p(-size))
        self._kept = radius * math.sin(_TWO_PI * angle)
        return radius * math.cos(_TWO_PI * angle)

    def integers(self, shape: tuple[int, ...], limit: int) -> np.ndarray:
        """Remainders of words; of two words from a limit of 2**28 on."""
        count = math.prod(shape)
        found = self.words(count) if limit < 1 << 28 else self.long_words(count)
        return (found if limit >= 1 << 64 else found % np.uint64(limit)).reshape(shape)

    def below(self, shape: tuple[int, ...], limit: int, is_long: bool) -> np.ndarray:
        """Remainders of one word, or of two, whatever the limit is."""
        found = self.long_words(math.prod(shape)) if is_long else self.words(math.prod(shape))
        return (found % np.uint64(limit)).reshape(shape)

    def permutation(self, n: int) -> np.ndarray:
        """Swaps from the front."""
        found = list(range(n))
        if n > 1:
            left = np.arange(n, 1, -1, dtype=np.uint64)
            steps = (self.words(n - 1) if n < 0xFFFFFFFF // 20 else self.long_words(n - 1)) % left
            for k, step in enumerate(steps.tolist()):
                found[k], found[k + step] = found[k + step], found[k]
        return np.array(found, np.int64)

    def mask(self, shape: tuple[int, ...], p: Any) -> np.ndarray:
        """True with probability `p`: a number takes two words each, an array of float32 or halves one."""
        if isinstance(p, (int, float)):
            return self.uniform(shape, np.dtype(np.float64)) < p
        if p.dtype.itemsize == 8:
            return self.uniform(shape, np.dtype(np.float64)) < p
        return self.uniform(shape, np.dtype(np.float32)) < p.astype(np.float32)


# -- Box and Muller, as PyTorch's kernels compute it ------------------------------------------------------------------


def _blocks(part: np.ndarray, dtype: np.dtype, mean: float, std: float) -> np.ndarray:
    """Eight cosines and eight sines of each 16 uniform numbers."""
    pairs = part.reshape(-1, 2, 8)
    size, angle = pairs.dtype.type(1) - pairs[:, 0], pairs[:, 1]
    if dtype.itemsize < 8:
        radius = np.sqrt(np.float32(-2) * _log(size))
        sine, cosine = _sine_and_cosine(np.float32(_TWO_PI) * angle)
        both = np.stack((radius * cosine, radius * sine), 1)
        return _fused(both, np.float32(std), np.float32(mean)).reshape(-1)
    radius = np.sqrt(-2.0 * _each(math.log, size))
    turned = _TWO_PI * angle
    both = np.stack((radius * _each(math.cos, turned), radius * _each(math.sin, turned)), 1)
    return _fused_double(both, std, mean).reshape(-1)


def _each(compute: Any, values: np.ndarray) -> np.ndarray:
    """By the host's own function, whose last bits NumPy's need not have."""
    return np.array([*map(compute, values.reshape(-1).tolist())]).reshape(values.shape)


def _fused(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of float32, rounded once: the sum in float64 is rounded to odd, so that the second rounding is right."""
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)  # exact
    addend = np.asarray(c, np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    inexact = (error != 0) & (bits & 1 == 0)
    bits[...] += np.where(inexact, np.where((error > 0) == (total > 0), 1, -1), 0)
    return total.astype(np.float32)


def _fused_double(a: np.ndarray, b: float, c: float) -> np.ndarray:
    """``a * b + c`` of float64, rounded once but for ties that nearly never occur."""
    product, error = _exact_product(a, b)
    total = product + c
    back = total - product
    return total + (((product - (total - back)) + (c - back)) + error)


def _exact_product(a: np.ndarray, b: float) -> tuple[np.ndarray, np.ndarray]:
    """The product and its error, by Dekker's splitting."""
    product = a * b
    high = a * 134217729.0
    high = high - (high - a)
    low = a - high
    other = b * 134217729.0
    other = other - (other - b)
    rest = b - other
    return product, ((high * other - product) + high * rest + low * other) + low * rest


_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1,
    -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_QUARTERS = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)  # of pi, with its bits in three parts


def _polynomial(x: np.ndarray, coefficients: tuple[float, ...]) -> Any:
    found: Any = np.float32(coefficients[0])
    for c in coefficients[1:]:
        found = _fused(found, x, np.float32(c))
    return found


def _log(x: np.ndarray) -> np.ndarray:
    """Cephes' logf, of numbers in (0, 1]."""
    fraction, exponent = np.frexp(x)
    small = fraction < np.float32(0.707106781186547524)
    e = exponent.astype(np.float32) - small
    y = (fraction - np.float32(1)) + np.where(small, fraction, np.float32(0))
    z = y * y
    found = _fused(_polynomial(y, _LOG) * y, z, e * np.float32(-2.12194440e-4))
    found = _fused(z, np.float32(-0.5), found)
    return _fused(e, np.float32(0.693359375), y + found)


def _sine_and_cosine(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cephes' sinf and cosf, of numbers that are not negative."""
    octant = (x * np.float32(1.27323954473516)).astype(np.int32)
    octant = (octant + 1) & ~1
    y = octant.astype(np.float32)
    for part in _QUARTERS:
        x = _fused(y, np.float32(part), x)
    z = x * x
    cosine = _fused(_polynomial(z, _COSINE) * z, z, -(z * np.float32(0.5))) + np.float32(1)
    sine = _fused(_polynomial(z, _SINE) * z, x, x)
    straight = octant & 2 == 0
    of_sine, of_cosine = np.where(straight, sine, cosine), np.where(straight, cosine, sine)
    return np.where(octant & 4 != 0, -of_sine, of_sine), np.where((octant - 2) & 4 == 0, -of_cosine, of_cosine)


__all__ = ["STATE_BYTES", "Mersenne"]
