"""Strings and bytes in native loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg

from .test_lists import check


def distance(a, b):
    row = list(range(len(b) + 1))
    for i in range(1, len(a) + 1):
        before, row[0] = row[0], i
        for j in range(1, len(b) + 1):
            kept = row[j]
            row[j] = min(row[j] + 1, row[j - 1] + 1, before + (a[i - 1] != b[j - 1]))
            before = kept
    return row[-1]


def crc(data):
    table = []
    for i in range(256):
        c = i
        for _ in range(8):
            c = (c >> 1) ^ 0xEDB88320 if c & 1 else c >> 1
        table.append(c)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF, data[-1] if data else None


def words(text):
    n = lines = 0
    inside = False
    for c in text:
        if c == "\n":
            lines += 1
        if c in " \n":
            inside = False
        elif not inside:
            inside = True
            n += 1
    return n, lines, len(text)


def balanced(text):
    stack = []
    for c in text:
        if c in ("(", "["):
            stack.append(c)
        elif not stack or (stack.pop() == "(") != (c == ")"):
            return False
    return not stack


def number(text):
    total, sign = 0, 1
    for k, c in enumerate(text):
        if k == 0 and c == "-":
            sign = -1
        elif c.isdigit():
            total = 10 * total + int(c)
        else:
            return None
    return sign * total


def shifted(text, by):
    out = []
    for c in text:
        if c.isalpha():
            out.append(chr((ord(c.lower()) - 97 + by) % 26 + 97))
        else:
            out.append(c)
    return out, text


def kinds(text):
    out = []
    for c in text:
        out.append((c.isdigit(), c.isalpha(), c.isalnum(), c.isspace(), c.isupper(), c.islower(), c.upper(), c.lower()))
    return out


def letters(n):
    out = []
    for k in range(n):
        out.append("ACGU"[k * k % 4])
    return out, "ACGU"[n % 4 - 4]


def palindromes(text):
    n = len(text)
    return sum(all(text[i + k] == text[j - k] for k in range((j - i + 1) // 2)) for i in range(n) for j in range(i, n))


def by_mode(mode, n):
    s = 0
    for k in range(n):
        if mode == "twice":
            s += 2 * k
        elif mode != "not":
            s += k
        else:
            s -= k
    return s


def first_of(text, wanted):
    for k, c in enumerate(text):
        if c == wanted:
            return k
    return -1


def smallest(text):
    least = "z"
    for c in text:
        if c < least:
            least = c
    return least


def among(data, chosen):
    return sum(b in chosen for b in data), [b for b in data if b not in chosen]


def pairs_of(text, more):
    pairs, found = {("A", "U"), ("U", "A"), ("G", 1)}, 0
    for i in range(len(text)):
        if (text[i], text[-1 - i]) in pairs:
            found += 1
        if (text[i], i) in pairs or text[i] in more or text in more:
            found += 100
        if text[i] not in {"A", "UU"} and (i, text[i]) not in pairs:
            found += 10000
    return found


def members(x, given):
    seen, nothing, pairs = {0, 1, 2.5, "a", None, (1, 2), -3}, set(), {(1, 2.5), (0, 0), (1, 2, 3)}
    found = []
    for k, v in enumerate(x):
        code = (v in seen) + 2 * (v not in given) + 4 * (v in nothing) + 8 * ((k % 2, v) in pairs) + 16 * (k in {0, 3})
        found.append(code + 32 * ((k, (k, v)) in pairs) + 64 * (k in seen))
    return found


CASES: list[tuple[Callable, list[tuple]]] = [
    (distance, [("kitten", "sitting"), ("", "abc"), ("é€𝄞x", "e€x𝄞"), ("a" * 30, "b" * 20)]),
    (crc, [(b"123456789",), (b"",), (bytes(range(256)),), ([1, 2, 3],)]),
    (words, [("two words\nand a line " * 9,), ("",), ("x",)]),
    (balanced, [("([])" * 9,), ("([)]",), ("",), ("(",), (")",)]),
    (number, [("-123",), ("9" * 18,), ("9" * 40,), ("12a",), ("٣",), ("",)]),
    (shifted, [("Hello, World", 3), ("ÄB", 1), ("", 1)]),
    (kinds, [("aZ0 \t\n\x0b\x1c\x1f\x7f!_", ), ("ß²",)]),
    (letters, [(9,), (0,), (2,)]),
    (palindromes, [("abacabad",), ("",), ("\ud800x\ud800",)]),
    (by_mode, [("twice", 9), ("not", 9), ("", 9), ("other", 9), ("twic€", 9)]),
    (first_of, [("hello world", "o"), ("hello", "x"), ("hello", "lo"), ("hello", "")]),
    (smallest, [("hello",), ("€é",), ("",)]),
    (pairs_of, [("AUGCAU", {"G", "AUGCAU"}), ("G", {"x"}), ("", set()), ("ÄUA" * 9, frozenset("Ä"))]),
    (members, [(np.resize([0, 1, 2, 3, -3, 1, 0], 20), {1, 0.1}), (np.resize([0.0, 2.5, -0.0, 0.1, np.nan], 20), {3, -0.0})]),
    (members, [(np.resize([0, 0.1, 2.5, 1], 20).astype(kind), {0.1, 1, 2}) for kind in ("f4", "u1", "?", "f2", "i4", "u8")]),
    (members, [(np.resize([0.5, 1j], 20), {1j, 0.5}), ([1.0, 2.0] * 9, {float("nan")}), ([1, 2] * 9, {np.int64(1)})]),
    (members, [([True, False] * 9, {2**62, 5}), ([2**62, 0] * 9, {2**62, 5}), ([0.5, 1.0] * 9, {2**70, 0.5})]),
    (members, [([1, 2, 60] * 9, set(range(50))), ("abca" * 9, {"b"}), ([(1, 2), (3, 4)] * 9, {(3, 4)})]),
    (among, [(b"abcabd", b"ab"), (b"", b""), (b"abc", b"")]),
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("function", "calls"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_as_python_runs_it(function: Callable, calls: list) -> None:
    check(function, *calls)


@pytest.mark.parametrize("function", [distance, crc, words, balanced, letters, palindromes, by_mode])
def test_one_program_for_all_texts(function: Callable) -> None:
    compiled = dg.compile(function, backend="c")
    for args in next(calls[:3] for f, calls in CASES if f is function):
        compiled(*args)
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks, dict(compiled.stats.breaks)


def test_the_same_object_comes_back() -> None:
    def chosen(a, b, n):
        for k in range(n):
            a, b = b, a
            if k == 5:
                break
        return a

    compiled, texts = dg.compile(chosen, backend="c"), ("some text", "other text")
    assert [compiled(*texts, n) is texts[n % 2] for n in (0, 1, 2, 3)] == [True] * 4
