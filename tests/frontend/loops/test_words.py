"""Ints beyond 64 bits of which only the lowest are wanted, ints from 2**63 on, and expressions that turn out to want all bits."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import dynagraph as dg

from .test_lists import outcome

MASK = 2**64 - 1


def fnv1a(n, h):
    for k in range(n):
        h ^= k & 255
        h = (h * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def lcg(n, x):
    total = 0.0
    for _ in range(n):
        x = (6364136223846793005 * x + 1442695040888963407) % 2**64
        total += (x >> 11) / 2**53
    return x, total


def xorshift(n, x):
    for _ in range(n):
        x ^= (x << 13) & MASK
        x ^= x >> 7
        x ^= (x << 17) & MASK
    return x


def split_mix(n, state):
    z = 0
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        z = z ^ (z >> 31)
    return z


def compares(n, x):
    less, odd, floats = 0, 0, 0.0
    for k in range(n):
        x = (x * 2862933555777941757 + 3037000493) & MASK
        if x < 2**63:
            less += 1
        if x % 10 == k % 10 or x == 5:
            odd += x // 1000 % 7
        floats += x * 0.5
        if not x:
            less = -1
    return less, odd, floats, x


def negative(n, x):
    for k in range(n):
        x = (x - (k + 2) * 0x7FFFFFFFFFFFFFFF) & MASK
        x = (x | 1) & 0xFFFFFFFF
    return x


def wants_all_bits(n, x):
    big = 0
    for k in range(n):
        x = (x * 3935559000370003845 + k) & MASK
        big = max(big, x * (x & 1023) % 1000003)
    return x, big, x * x


def not_masked_at_last(n, x):
    for k in range(n):
        y = x * 8935559000370003845 + (k & 3)
        x = y & MASK
    return x, y


def of_bytes(data, h):
    for byte in data:
        h ^= byte
        h = (h * 0x100000001B3) & MASK
        h = (byte | h) ^ len(data)
    return h


@pytest.mark.parametrize("make", (bytes, list, np.array), ids=lambda m: m.__name__)
def test_words_of_given_numbers(make):
    compiled = dg.compile(of_bytes)
    for numbers in ([7, 200, 0, 255] * 20, [1, 2] * 40, [3, -1, 5] * 20, []):
        if make is not bytes or -1 not in numbers:
            for h in (0xCBF29CE484222325, 5, 2**63):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    got, want = outcome(compiled, (make(numbers), h)), outcome(of_bytes, (make(numbers), h))
                assert got == want
    assert not compiled.stats.fallbacks
    if make is bytes:
        assert compiled.stats.side_exits == {}


PROGRAMS = (fnv1a, lcg, xorshift, split_mix, compares, negative, wants_all_bits, not_masked_at_last)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_words(program):
    compiled = dg.compile(program)
    for n, x in ((40, 1), (60, MASK), (41, 2**63), (50, 2**62 + 12345), (9, 7)):
        got, want = compiled(n, x), program(n, x)
        assert got == want
        assert repr(got) == repr(want)
    assert not compiled.stats.fallbacks


@pytest.mark.parametrize("program", (fnv1a, lcg, xorshift, split_mix), ids=lambda p: p.__name__)
def test_nothing_leaves_the_loop(program):
    compiled = dg.compile(program)
    assert compiled(1000, 0xCBF29CE484222325) == program(1000, 0xCBF29CE484222325)
    assert compiled.stats.side_exits == {}


OPERATORS = ("+", "-", "*", "<<", "|", "^", "&", "%", "//", ">>")


def test_random_expressions():
    draw = random.Random(7)

    def expression(depth):
        if depth == 0:
            return draw.choice(("x", "y", "k", "x", str(draw.choice((1, 3, 2**31, 2**63, MASK, 0x9E3779B97F4A7C15)))))
        symbol = draw.choice(OPERATORS)
        right = str(draw.choice((1, 7, 13, 31))) if symbol in ("<<", ">>", "//", "%") else expression(depth - 1)
        return f"({expression(depth - 1)} {symbol} {right})"

    for _ in range(25):
        ends = ("& MASK", "% 2**64", "& 0xFFFFFFFF", "% 1000003")
        lines = [f"        {name} = {expression(2)} {draw.choice(ends)}" for name in "xy"]
        source = "\n".join(["def f(n, x, y):", "    for k in range(n):", *lines, "    return x, y"])
        scope = {"MASK": MASK}
        exec(source, scope)
        compiled = dg.compile(scope["f"])
        for n, x, y in ((30, 5, 2**63 + 9), (12, MASK, 1)):
            assert compiled(n, x, y) == scope["f"](n, x, y), source
        assert not compiled.stats.fallbacks, source
