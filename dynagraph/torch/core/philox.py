"""Random numbers as pure functions of a seed and a counter: the Philox 4x32-10 generator of the Random123 paper.

The numbers of a call depend on (seed, offset, shape, dtype) only, never on how the work is divided: word ``w`` of a call is lane
``w % 4`` of the block whose 128-bit counter is ``offset + w // 4`` and whose key is the 64-bit seed.  So a kernel, a compiled
program and NumPy give the same numbers, on any device (logarithms and cosines may differ in the last bit).

Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph.torch.core import samplers

WORDS = 4  # of a block
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85  # what the key grows by in each round
_HALF = np.uint64(32)
_CHUNK = 16384  # blocks at a time: what they need stays in the cache
_FEW, _AHEAD = 128, 1024  # blocks
_NOTHING = 0, np.empty(0, np.uint32)
_ahead: dict[int, tuple[int, np.ndarray]] = {}  # by seed: words that were drawn ahead, from an offset on
_BITS = {"float16": 11, "bfloat16": 8}  # of a word that a uniform number is made of


def block(seed: int, counter: Any, attempt: int = 0) -> tuple[Any, Any, Any, Any]:
    """Four words, as uint32 arrays, for each counter of a row of uint64; `attempt` is the third word of the counter.

    >>> [hex(int(w[0])) for w in block(0, np.zeros(1, np.uint64))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    halves = counter.view(np.uint32)
    low = halves[0::2].copy()
    return rounds(low, halves[1::2], np.full_like(low, attempt), np.zeros_like(low), seed)


def rounds(a: Any, b: Any, c: Any, d: Any, seed: int) -> tuple[Any, Any, Any, Any]:
    """The ten rounds of four counter words, uint32 arrays of which `a` and `c` are overwritten, under the 64-bit key `seed`."""
    key, other = seed & 0xFFFFFFFF, seed >> 32
    products = [np.empty_like(a, dtype=np.uint64) for _ in range(4)]  # two for each round, and those whose halves are still read
    halves = [p.view(np.uint32) for p in products]
    low, high = [h[0::2] for h in halves], [h[1::2] for h in halves]
    first = 0
    for _ in range(10):
        second = first + 1
        np.multiply(a, _MULTIPLIERS[0], out=products[first])
        np.multiply(c, _MULTIPLIERS[1], out=products[second])
        np.bitwise_xor(high[second], b, out=a)
        np.bitwise_xor(a, np.uint32(key), out=a)
        np.bitwise_xor(high[first], d, out=c)
        np.bitwise_xor(c, np.uint32(other), out=c)
        b, d = low[second], low[first]
        first ^= 2
        key, other = (key + _WEYL[0]) & 0xFFFFFFFF, (other + _WEYL[1]) & 0xFFFFFFFF
    return a, b, c, d


def followed(seed: Any, offset: Any, count: int, library: Any) -> Any:
    """As `words`, as uint64, of a seed and an offset that are arrays of one element, or scalars: by functions of whole arrays only.

    What captured code computes: the program has the two as inputs, and a loop over blocks in place of the arrays.
    """
    low = np.uint64(0xFFFFFFFF)
    blocks = -(-count // WORDS)
    counter = library.arange(blocks, dtype=np.uint64) + offset
    a, b, c, d = counter & low, counter >> _HALF, library.zeros(blocks, np.uint64), library.zeros(blocks, np.uint64)
    key, other = seed & low, seed >> _HALF
    for _ in range(10):
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = (second >> _HALF) ^ b ^ key, second & low
        c, d = (first >> _HALF) ^ d ^ other, first & low
        key, other = (key + np.uint64(_WEYL[0])) & low, (other + np.uint64(_WEYL[1])) & low
    return np.stack((a, b, c, d), axis=1).reshape(-1)[:count]


def words(seed: Any, offset: Any, count: int, library: Any = np) -> Any:
    """`count` random 32-bit words, from the block `offset` on."""
    if not isinstance(seed, int):
        return followed(seed, offset, count, library)
    blocks = -(-count // WORDS)
    if blocks > _FEW or library is not np:
        return _drawn(seed, offset, blocks, library)[:count]
    start, ahead = _ahead.get(seed, _NOTHING)  # a few words cost as much as many: they are drawn ahead
    if not start <= offset <= start + len(ahead) // WORDS - blocks:
        start, ahead = offset, _drawn(seed, offset, _AHEAD, np)
        ahead.flags.writeable = False
        if len(_ahead) > 8:
            _ahead.clear()
        _ahead[seed] = start, ahead
    first = WORDS * (offset - start)
    return ahead[first : first + count]


def _drawn(seed: int, offset: int, blocks: int, library: Any) -> Any:
    found = library.empty((blocks, WORDS), np.uint32)
    chunk = _CHUNK if library is np else max(blocks, 1)
    for start in range(0, blocks, chunk):
        stop = min(start + chunk, blocks)
        counter = library.arange(stop - start, dtype=np.uint64) + np.uint64((offset + start) & 0xFFFFFFFFFFFFFFFF)
        for lane, values in enumerate(block(seed, counter)):
            found[start:stop, lane] = values
    return found.reshape(-1)


def uniform_words(count: int, dtype: np.dtype) -> int:
    """How many words so many uniform numbers take."""
    return count * (2 if dtype.itemsize == 8 else 1)


def normal_words(count: int, dtype: np.dtype) -> int:
    """How many words so many normal numbers take: they are made in pairs."""
    return (count + count % 2) * (2 if dtype.itemsize == 8 else 1)


def uniform(seed: Any, offset: Any, shape: tuple[int, ...], dtype: np.dtype, library: Any = np) -> Any:
    """Numbers in [0, 1): multiples of 2**-53 (float64), 2**-24 (float32), 2**-11 (float16) and 2**-8 (bfloat16)."""
    count = math.prod(shape)
    found = words(seed, offset, uniform_words(count, dtype), library)
    if dtype.itemsize == 8:
        return _double(found).reshape(shape)
    bits = 24 if dtype.itemsize == 4 else _BITS[dtype.name]  # NumPy takes a microsecond to name a dtype
    made = (found >> found.dtype.type(32 - bits)).astype(np.float32) * np.float32(2.0**-bits)
    return made.astype(dtype, copy=False).reshape(shape)


def _long(found: Any) -> Any:
    """Pairs of words as uint64: the second is the upper half."""
    if found.dtype.itemsize == 4:
        return found.view(np.uint64)
    pairs = found.reshape(-1, 2)
    return (pairs[:, 1] << _HALF) | pairs[:, 0]


def _double(found: Any) -> Any:
    return (_long(found) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(seed: Any, offset: Any, shape: tuple[int, ...], dtype: np.dtype, library: Any = np) -> Any:
    """Standard normal numbers, by Box and Muller: two of two uniform numbers.  Halves are rounded from float32."""
    count = math.prod(shape)
    found = words(seed, offset, normal_words(count, dtype), library)
    if dtype.itemsize == 8:
        part = _double(found)
        size, angle = 1.0 - part[0::2], part[1::2] * (2 * math.pi)
    else:
        size = found[0::2].astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)  # in (0, 1]
        angle = found[1::2].astype(np.float32) * np.float32(2 * math.pi * 2.0**-32)
    radius = np.sqrt(np.abs(np.log(size) * size.dtype.type(-2)))
    made = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1).reshape(-1)
    return made[:count].astype(dtype, copy=False).reshape(shape)


def integer_words(count: int, limit: int) -> int:
    """How many words so many integers below a limit take."""
    return count if limit < 1 << 28 else 2 * count


def integers(seed: Any, offset: Any, shape: tuple[int, ...], limit: int, library: Any = np) -> Any:
    """Integers from 0 to ``limit - 1`` as uint64; limits are at most 2**64."""
    found = words(seed, offset, integer_words(math.prod(shape), limit), library)
    if limit < 1 << 28:  # the upper half of the product is as even as a remainder would be
        return ((found.astype(np.uint64) * np.uint64(limit)) >> _HALF).reshape(shape)
    wide = _long(found)
    return (wide if limit >= 1 << 64 else wide % np.uint64(limit)).reshape(shape)


def mask(seed: Any, offset: Any, shape: tuple[int, ...], p: Any, library: Any = np) -> Any:
    """True with probability `p`, a number or an array that broadcasts to the shape; one word each."""
    drawn = words(seed, offset, math.prod(shape), library).reshape(shape)
    if isinstance(p, (int, float)):
        threshold = min(max(round(p * 2.0**32), 0), 1 << 32)
        return drawn < np.uint32(threshold) if threshold < 1 << 32 else np.ones_like(drawn, dtype=np.bool_)
    return drawn < np.rint(p.astype(np.float64) * 2.0**32)


def permutation(seed: Any, offset: Any, n: int, library: Any = np) -> Any:
    """The numbers from 0 to ``n - 1`` in random order: the order of `n` random 64-bit keys."""
    keys = _long(words(seed, offset, 2 * n, library))
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def pairs(seed: Any, offset: Any, places: Any, attempt: int) -> tuple[Any, Any]:
    """Two uniform doubles in [0, 1) for each place (uint64): those of its own block in an attempt at rejection."""
    key, first = (v if isinstance(v, int) else v.item() for v in (seed, offset))
    a, b, c, d = block(key, places + np.uint64(first), attempt)
    upper, rest = 2.0**-32, 2.0**-53
    return a * upper + (b >> np.uint32(11)) * rest, c * upper + (d >> np.uint32(11)) * rest


def poisson(seed: Any, offset: Any, rate: Any) -> Any:
    """Poisson numbers of an array of rates, as float64; one block of the counter for each."""
    return samplers.poisson(rate, lambda places, attempt: pairs(seed, offset, places, attempt))


def binomial(seed: Any, offset: Any, count: Any, p: Any) -> Any:
    """Binomial numbers of arrays of one shape, as float64; one block of the counter for each."""
    return samplers.binomial(count, p, lambda places, attempt: pairs(seed, offset, places, attempt))


def gamma(seed: Any, offset: Any, shape: Any) -> Any:
    """Logarithms of gamma numbers of an array of shapes, as float64; one block of the counter for each."""
    return samplers.gamma(shape, lambda places, attempt: pairs(seed, offset, places, attempt))


__all__ = [
    "WORDS", "binomial", "block", "followed", "gamma", "integer_words", "integers", "mask", "normal", "normal_words", "permutation",
    "poisson", "rounds", "uniform", "uniform_words", "words",
]  # fmt: skip
