"""Python numbers that change from call to call: arithmetic and `math` are as Python has them, without a program for each."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dynagraph as dg

X = np.linspace(0.5, 2.0, 5)
RATES = {
    "power of a fraction": lambda x, t: x / (1 - 0.9**t),
    "power of a large base": lambda x, t: x * 3.7**t,
    "root": lambda x, t: x * t**-0.5,
    "reciprocal": lambda x, t: x * (1 / t),
    "decay": lambda x, t: x * (0.1 / (1 + 0.01 * t)),
    "cosine": lambda x, t: x * (0.5 * (1 + math.cos(math.pi * t / 100))),
    "square root of the next": lambda x, t: x / math.sqrt(t + 1.5),
    "nested": lambda x, t: x * (math.exp(-(0.5**t)) % 0.3),
    "whole divisions": lambda x, t: x * (7.5 // t) + t / 3,
}


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", RATES)
def test_one_program_serves_all_values(name: str, kind: type) -> None:
    plain = RATES[name]
    compiled = dg.compile(plain, backend="reference")
    for t in map(kind, range(2, 12)):
        np.testing.assert_array_equal(compiled(X, t), plain(X, t))
    assert compiled.stats.compiles == 2 and compiled.stats.fallbacks == 0


def test_attributes() -> None:
    def plain(x, t):
        t = t * 0.5
        return x * t.real, getattr(t, "dtype", None), hasattr(t, "shape"), hasattr(t, "imag")

    compiled = dg.compile(plain, backend="reference")
    for t in (1.5, 2.5, 3.5, 4.5):
        y, *others = compiled(X, t)
        np.testing.assert_array_equal(y, plain(X, t)[0])
        assert others == [None, False, True]
    assert compiled.stats.compiles == 2 and not compiled.stats.breaks and compiled.stats.fallbacks == 0


QUESTIONS = {
    "isscalar": np.isscalar,
    "class": lambda t: t.__class__,
    "doc": lambda t: t.__doc__,
    "real": lambda t: getattr(t, "numerator", t).real,
    "fraction": lambda t: (getattr(t, "denominator", None), t.imag),
    "index": lambda t: hasattr(t, "__index__"),
}


@pytest.mark.parametrize("operand", ["the number", "a number computed of it", "a size"])
@pytest.mark.parametrize("kind", [int, float, np.float64, np.int32, bool])
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_numbers_are_does_not_change_with_their_value(question: str, kind: type, operand: str) -> None:
    ask = QUESTIONS[question]

    def plain(x, t):
        number = t if operand == "the number" else t * 2 - 1 if operand == "a number computed of it" else x.shape[0]
        return ask(number), x + 1

    compiled = dg.compile(plain, backend="reference")
    for n, t in enumerate((1, 2, 3, 0, 5)):
        x = np.arange(n + 2.0)
        answer, y = compiled(x, kind(t))
        assert repr(answer) == repr(plain(x, kind(t))[0]) and np.array_equal(y, x + 1)
    assert compiled.stats.fallbacks == 0


@pytest.mark.parametrize("name", ["__index__", "__iadd__", "__matmul__", "__setitem__", "dot", "partition", "flat", "sum", "nope"])
@pytest.mark.parametrize("dtype", [float, np.float32, int, bool, complex])
def test_attributes_that_scalars_of_numpy_have_not(dtype: type, name: str) -> None:
    def plain(x, t):
        return hasattr(t, name), hasattr(x.max(), name), hasattr(x, name), x + x

    x = np.ones((2, 2), dtype)
    compiled = dg.compile(plain, backend="reference")
    for t in (x[0, 0], x[0, 0] + x[0, 0]):
        assert compiled(x, t)[:3] == plain(x, t)[:3]


def test_an_attribute_that_floats_have_not() -> None:
    compiled = dg.compile(lambda x, t: x * (t + 1).T, backend="reference")
    for t in (1.5, 2.5, 3.5):
        with pytest.raises(AttributeError, match="'float' object has no attribute 'T'"):
            compiled(X, t)


def outcome(function, *args):
    try:
        return function(*args).tolist()
    except ArithmeticError as error:
        return repr(error)


@pytest.mark.parametrize("values", [(2.5, 3.5, 0.0, 4.5), (2.5, 3.5, 1e9, -1e9), (2.5, math.inf, math.nan, -2.5)])
def test_what_python_raises_is_raised(values: tuple[float, ...]) -> None:
    def plain(x, t):
        return x * (1 / t) + 2.0 ** (t * 3)

    compiled = dg.compile(plain, backend="reference")
    for t in values:
        np.testing.assert_equal(outcome(compiled, X, t), outcome(plain, X, t))


def test_what_the_code_catches_is_not_raised() -> None:
    """A negative power overflows, though the base is a fraction and the number itself is not negative."""

    def plain(x, t):
        try:
            scale = 0.5 ** (t - 3000)
        except OverflowError:
            scale = -1.0
        return x * scale

    compiled = dg.compile(plain, backend="reference")
    for t in (3001, 3005, 3009, 7, 3010, 5, 2001):
        np.testing.assert_array_equal(compiled(X, t), plain(X, t))


def test_quotients_of_integers_that_no_float_is() -> None:
    def plain(x, t):
        return x * ((-t * t * t) / 3) + (t * t * t) / 7

    compiled = dg.compile(plain, backend="reference")
    for t in (5, 7, 2000001, 1999999, 1048573, 208065, 208063):
        np.testing.assert_array_equal(compiled(X, t), plain(X, t))


def test_a_complex_power_is_no_float() -> None:
    def plain(x, t):
        return x * (-8.5) ** t

    compiled = dg.compile(plain, backend="reference")
    for t in (2.0, 3.0, 1.5, 0.5):
        np.testing.assert_array_equal(compiled(X, t), plain(X, t))


def test_a_branch_on_such_a_number_makes_it_a_constant() -> None:
    def plain(x, t):
        return x * 2 if t / 2 > 2 else x * 3

    compiled = dg.compile(plain, backend="reference")
    for t in (2, 3, 5, 7, 4):
        np.testing.assert_array_equal(compiled(X, t), plain(X, t))
    assert not compiled.stats.breaks


@pytest.mark.parametrize("whole", [False, True])
def test_a_branch_on_a_number_that_takes_ever_other_values_is_a_guard(whole: bool) -> None:
    def plain(x, t):
        y = x * t
        if t > 5.0:
            y = y + t
        return y - 1

    compiled = dg.compile(plain, fullgraph=whole)
    for t in np.linspace(0.5, 12.0, 25).tolist():
        np.testing.assert_array_equal(compiled(X, t), plain(X, t))
    assert compiled.stats.compiles == 3 and not compiled.stats.breaks and compiled.stats.fallbacks == 0


@pytest.mark.parametrize("large", [2**63, 2**64 + 5, -(2**63) - 1, 2**70])
def test_no_guard_computes_with_numbers_beyond_64_bits(large: int) -> None:
    def plain(x, n):
        x = x * (2 if n // abs(large) > 3 else 3)
        return x * 5 if n * n * n > 7 + large else x * 7

    compiled = dg.compile(plain, backend="reference", dynamic=True)
    with dg.config.override(strict=True):
        for n in (3, 2**30, 2**61, 2**62, 5, 3):
            np.testing.assert_array_equal(compiled(X, n), plain(X, n))


TEXTS = {
    "f-string": lambda x, t, texts: texts.append(f"step {t}"),
    "percent": lambda x, t, texts: texts.append("%d" % t),  # noqa: UP031
    "size": lambda x, t, texts: texts.append(f"{x[:t].shape}"),
    "str": lambda x, t, texts: texts.append(str(t + 1)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_numbers_that_change_make_few_programs(name: str) -> None:
    def plain(x, t, texts):
        y = x[:t] * 2
        TEXTS[name](x, t, texts)
        return y + 1

    compiled = dg.compile(plain, backend="reference")
    found, expected = [], []
    for t in range(2, 32):
        np.testing.assert_array_equal(compiled(np.arange(40.0), t, found), plain(np.arange(40.0), t, expected))
    assert found == expected and compiled.stats.compiles <= 24 and compiled.stats.fallbacks == 0


def test_comparisons_with_numbers_of_the_code_are_guards() -> None:
    def plain(x, t):
        if t != 0 and t < 2:
            return x * t
        return x + t if t <= 5.0 else x - t

    compiled = dg.compile(plain, backend="reference")
    for t in (0.5, 0.75, 1.5, 1.0, 0.0, 2.0, 3.0, 4.0, 7.0, 8.0, 0.1, math.nan, 2.5):
        np.testing.assert_array_equal(compiled(X, t), plain(X, t))
    assert compiled.stats.compiles <= 6 and not compiled.stats.breaks and compiled.stats.fallbacks == 0


def test_comparisons_of_computed_numbers_are_guards() -> None:
    def plain(x, t, n):
        if t * 2.0 + n * n > 3.0:
            x = x * t
        if 0.9**n > 0.4 and t < n:
            x = x - 1.0
        return x / max(t, -t) if math.sqrt(t + 1.0) >= 1.5 else x

    compiled = dg.compile(plain, backend="reference")
    floats = 0.5, 0.75, 1.5, 1.75, 4.0, 2.5, 8.0, 0.25, 0.3, 3.5, 7.5, 0.9
    for t, n in zip(floats * 2, (2, 3, 2, 5, 11, 7, 4, 9, 13, 6, 3, 12) * 2):
        np.testing.assert_array_equal(compiled(X, t, n), plain(X, t, n))
    assert compiled.stats.compiles <= 9 and not compiled.stats.breaks and compiled.stats.fallbacks == 0
    with pytest.raises(ValueError, match=r"math domain|nonnegative"):
        compiled(X, -4.0, 3)


def test_averages_that_begin_anew_need_few_programs() -> None:
    state = {"steps": 0}

    def plain(average, x, state):
        state["steps"] += 1
        decay = min(0.9, 1.0 - 1.0 / (state["steps"] + 1))
        return average * decay + x * (1.0 - decay)

    compiled, other = dg.compile(plain, backend="reference"), {"steps": 0}
    got = want = X
    for _ in range(20):
        got, want = compiled(got, X + 1.0, state), plain(want, X + 1.0, other)
        np.testing.assert_array_equal(got, want)
    assert compiled.stats.compiles <= 4 and not compiled.stats.breaks and compiled.stats.fallbacks == 0


def test_roots_of_negative_numbers_are_compared_as_python_compares_them() -> None:
    compiled = dg.compile(lambda x, t: x * 2.0 if t**0.5 > 1.0 else x, backend="reference")
    for t in (2.0, 3.0, 0.25, 4.0, 0.5):
        np.testing.assert_array_equal(compiled(X, t), X * 2.0 if t**0.5 > 1.0 else X)
    with pytest.raises(TypeError, match="not supported between instances of 'complex' and 'float'"):
        compiled(X, -1.0)
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error


INTEGERS: dict[str, tuple] = {  # functions of an integer that counts up, and the answers that decide: each is a program
    "less than a fraction": (lambda x, n: x * 2 if n < 6.5 else -x, 2),
    "at most a whole float": (lambda x, n: x * 2 if n <= 6.0 else -x, 2),
    "greater than a float": (lambda x, n: x * 2 if n > 6.0 else -x, 2),
    "a float at most": (lambda x, n: x * 2 if 6.25 <= n else -x, 2),  # noqa: SIM300
    "equal to a whole float": (lambda x, n: x * 2 if n == 6.0 else -x, 2),
    "other than a fraction": (lambda x, n: x * 2 if n != 6.5 else -x, 1),
    "infinities": (lambda x, n: x * 2 if -math.inf < n <= math.inf and n != math.inf else -x, 1),
    "not a number": (lambda x, n: x * 2 if n < math.nan or n == math.nan or n != math.nan else -x, 1),
    "keys of a dict": (lambda x, n: x * {6: 2, 9: 3, "six": 4}[n] if n in {6: 2, 9: 3, "six": 4} else x * 2, 3),
    "keys of a view": (lambda x, n: -x if n in {6: 2, 60: 3}.keys() else x * 2, 2),  # noqa: SIM118
    "elements of a set": (lambda x, n: -x if n in {6, 9.0, 60} else x * 2, 3),
    "floats of integers": (lambda x, n: x * float(n) + float(n / 3), 1),
    "rounded integers": (lambda x, n: x * math.floor(n) / math.ceil(n) + math.trunc(n) + round(n), 1),
    "rounded quotients": (lambda x, n: x * math.floor(n / 6) + int(n / 6) + math.ceil(n / 6) + round(n / 6), 8),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_programs_for_answers_about_integers_that_change(name: str) -> None:
    plain, answers = INTEGERS[name]
    compiled = dg.compile(plain, backend="reference")
    for n in [*range(2, 14), 6, 9, 2]:
        np.testing.assert_array_equal(compiled(X, n), plain(X, n))
    assert compiled.stats.compiles <= 1 + answers and not compiled.stats.breaks and compiled.stats.fallbacks == 0


def test_large_floats_and_dicts_ask_for_the_integer() -> None:
    many = dict.fromkeys(range(0, 100, 7))
    many.update(dict.fromkeys(range(200, 210)))
    for plain in (lambda x, n: x * 2 if n < 1e300 else -x, lambda x, n: x * 2 if n in many else -x):
        compiled = dg.compile(plain, backend="reference")
        for n in range(2, 9):
            np.testing.assert_array_equal(compiled(X, n), plain(X, n))


DECISIONS = {
    "abs": lambda x, c: x * abs(c - 3),
    "abs in a comparison": lambda x, c: x * 2 if abs(c) > 1e30 else x * 3,
    "abs of a formula in a comparison": lambda x, c: x * 2 if abs(c - 3) < 4 else x * abs(c * -2),
    "min and max": lambda x, c: x * max(0.0, min(1.0, c / 100)),
    "round": lambda x, c: x * round(c * 1.234, 2),
    "round in a comparison": lambda x, c: x * 3 if round(c * 1.234, 2) > 5 else x * 2,
    "pow": lambda x, c: x * pow(c, 2),
    "pow in a comparison": lambda x, c: x * 3 if pow(c, 2) > 50 else x * 2,
    "divmod": lambda x, c: x * divmod(c, 1.5)[1] + divmod(c, 1.5)[0],
    "isnan": lambda x, c: x * 2 if math.isnan(c) else x * c,
    "isfinite": lambda x, c: x * c if math.isfinite(c) and not math.isinf(c) else x * 2,
    "isclose": lambda x, c: x * c if math.isclose(c, 20.0) else x * 3,
    "truth": lambda x, c: x * 3 if c - 20 else x * 2,
}


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", DECISIONS)
def test_what_numbers_decide_is_a_program_for_each_answer(name: str, kind: type) -> None:
    plain = DECISIONS[name]
    compiled = dg.compile(plain, backend="reference", mode="max")
    for c in map(kind, range(2, 14)):
        np.testing.assert_array_equal(compiled(X, c), plain(X, c))
    assert compiled.stats.compiles <= 4 and not compiled.stats.breaks and compiled.stats.fallbacks == 0
    for c in (-3.25, 0.0, -0.0, 1e300, math.inf, -math.inf, math.nan, -7, 0, 1, 20, 1 << 40, 1 << 70, -7.0, 13.5):
        with np.errstate(all="ignore"):
            assert str(outcome_of_any(compiled, X, c)) == str(outcome_of_any(plain, X, c)), c


def outcome_of_any(function, *args):
    try:
        return function(*args).tolist()
    except (ArithmeticError, ValueError) as error:
        return repr(error)
