"""All pairs of Python's and NumPy's scalars, and 0-d arrays, under all operators: value, type, dtype, sign of zero and errors.

Which operand answers is decided by Python's rules: a subclass's reflected method goes first (np.float64 is a float, np.complex128
a complex), else the left operand does.  Each expression of a pair is a function of its own; of those that raise, a sample is.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

VALUES: dict[str, Any] = {
    "bool": True, "int": 3, "negative": -3, "zero": 0, "huge": 2**70, "-huge": -(2**70), "beyond int64": 2**63,
    "all ones": 2**64 - 1, "float": 2.5, "-0.0": -0.0, "nan": math.nan,
    "complex": 1j, "complex(-0.0)": complex(-0.0, 2.0),
    "np.bool": np.True_, "int8": np.int8(3), "int16": np.int16(-3), "int32": np.int32(7), "int64": np.int64(-2),
    "uint8": np.uint8(3), "uint16": np.uint16(5), "uint32": np.uint32(7), "uint64": np.uint64(2), "float16": np.float16(1.5),
    "float32": np.float32(-2.5), "float64": np.float64(2.0),
    "float64(-0.0)": np.float64(-0.0), "float64(-inf)": np.float64(-np.inf),
    "complex64": np.complex64(1 - 2j), "complex128": np.complex128(-2 + 1j), "longdouble": np.longdouble(2.5),
    "0-d int64": np.array(3), "0-d float32": np.array(np.float32(-2.5)), "0-d float64": np.array(-0.0), "0-d complex": np.array(1j),
}  # fmt: skip
SYMBOLS = ("+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "&", "|", "^", "<<", ">>", "@")
BINARY = [
    *(f"a {symbol} b" for symbol in SYMBOLS), "divmod(a, b)", "pow(a, b)", "sum([a, b])", "sum((b,), a)", "sum([a, b], 1j)",
    "max(a, b)", "min(a, b)", "a in [b]", "a in (b, 1)", "[a] == [b]", "a and b", "a or b", "operator.iadd(a, b)",
    "operator.ipow(a, b)", "operator.mul(a, b)", "a.__add__(b)", "a.__eq__(b)", "a.__rsub__(b)", "round(a, b)", "complex(a, b)",
    "math.hypot(a, b)", "math.copysign(a, b)", "math.fmod(a, b)", "math.pow(a, b)", "math.isclose(a, b)", "{a: 1}.get(b)",
    "isinstance(a, type(b))", "np.add(a, b)", "np.power(a, b)", "np.arctan2(a, b)",
]  # fmt: skip
UNARY = [
    "-a", "+a", "~a", "not a", "abs(a)", "round(a)", "round(a, 1)", "int(a)", "float(a)", "complex(a)", "bool(a)", "hash(a)",
    "str(a)", "f'{a}'", "f'{a:.3f}'", "'%s' % a", "math.floor(a)", "math.ceil(a)", "math.trunc(a)", "math.sqrt(a)",
    "math.exp(a)", "math.isnan(a)", "math.frexp(a)", "math.modf(a)", "math.gcd(a, 6)", "math.fsum([a, a])", "math.prod([a, a])",
    "operator.index(a)", "range(a)", "[1, 2, 3, 4][a]", "[1] * a", "a.real", "a.imag", "a.conjugate()", "type(a)",
    "isinstance(a, float)", "isinstance(a, complex)", "isinstance(a, int)", "a.is_integer()", "a.as_integer_ratio()",
    "a.bit_length()", "a is None", "a == None", "a == 'x'", "a + 'x'", "sum([a])", "sum([a] * 3, 1j)", "sum([1j, a])",
    "max([a])", "1j * a", "1j + a", "1j - a", "1j / a", "1j ** a", "1j == a", "1j != a", "1j < a", "a == 1j", "a ** 2",
    "a ** 0.5", "a ** -1", "np.sqrt(a)", "np.exp(a)", "np.isnan(a)", "np.floor(a)", "np.real(a)", "np.imag(a)", "np.isreal(a)",
    "np.iscomplex(a)", "np.isscalar(a)", "np.abs(a)", "np.sign(a)", "np.round(a)", "np.conj(a)", "np.angle(a)",
    "np.clip(a, 0, 1)", "np.power(a, 0.5)", "np.float32(a)", "np.int64(a)", "np.complex128(a)", "np.array([a])",
    "np.full(2, a)", "np.full_like([1], a)", "np.asarray(a)", "np.atleast_1d(a)", "np.sum(a)", "np.cumsum(a)", "np.stack([a])",
    "np.ravel(a)", "np.zeros_like(a)", "np.dot(a, a)", "np.where(True, a, a)", "np.uint64(a)", "np.array(a, 'u8')", "np.square(a)",
    "np.max([a])", "np.broadcast_to(a, 2)", "np.tile(a, 2)", "np.sort([a])", "np.array([a, 1])", "np.result_type(a)",
    "np.pad([1], 1, constant_values=a)", "np.array([a, 1.5])", "np.concatenate([[a], [1]])", "np.repeat(a, 2)",
]  # fmt: skip
NAMES = {"np": np, "math": math, "operator": operator}
MOST = 10**6  # for exponents
ERRORS = 16  # one in so many of a pair's expressions that raise is compiled: each is a capture of its own


def function(expression: str, prelude: str) -> Callable:
    source = f"def f(a, b):\n{prelude}    return {expression}\n"
    names = dict(NAMES)
    exec(compile(source, f"<{hash(source)}>", "exec"), names)
    return names["f"]


def seen(value: Any) -> Any:
    """Everything that tells a value from another one."""
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(seen, value))
    if isinstance(value, (np.ndarray, np.generic)):
        nan = value.dtype.kind in "fc" and bool(np.isnan(value).all())
        by_value = value.dtype.char in "OgG"  # long doubles have padding
        held = "nan" if nan else repr(value) if by_value else value.tobytes()
        return type(value), value.dtype, value.dtype.char, value.shape, held
    return type(value), repr(value)


def fresh(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def outcome(f: Callable, *args: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return seen(f(*map(fresh, args)))
        except Exception as error:  # whatever Python or NumPy raises
            return type(error), str(error)


def endless(expression: str, a: Any, b: Any) -> bool:
    """Whether Python computes an int of more digits than memory holds, and says nothing before."""
    if type(a) not in (int, bool) or type(b) is not int:
        return False
    return ("round" in expression and -b > MOST) or (any(p in expression for p in ("**", "pow")) and abs(a) > 1 and b > MOST)


def is_error(found: Any) -> bool:
    return isinstance(found[0], type) and issubclass(found[0], Exception)


def differences(expressions: Sequence[str], a: Any, b: Any, prelude: str = "", before: tuple = ()) -> list[str]:
    """The expressions that differ when compiled.  `before`: the arguments of an earlier call, which makes numbers symbols."""
    expressions = [e for e in expressions if not endless(e, a, b)]
    plain = {e: function(e, prelude) for e in expressions}
    raise_ = {e for e in expressions if is_error(outcome(plain[e], a, b))}
    tried = [e for k, e in enumerate(sorted(raise_)) if (k + len(str(a)) + len(str(b))) % ERRORS == 0]
    return [e for e in expressions if (e in tried or e not in raise_) and differ(e, a, b, prelude, before)]


def differ(expression: str, a: Any, b: Any, prelude: str, before: tuple) -> bool:
    """In a function of its own: several breaks end a capture, and what follows is NumPy's."""
    f = function(expression, prelude)
    compiled = dg.compile(f, backend="reference")
    with dg.config.override(strict=True):
        if before:
            outcome(compiled, *before)
        want = outcome(f, a, b)
        return any(outcome(compiled, a, b) != want for _ in range(2))


def changed(value: Any) -> Any:
    return type(value)(value + 1) if type(value) in (int, float, complex) else value


KINDS = ("int", "huge", "float", "complex", "np.bool", "int8", "uint64", "float16", "float64", "complex64", "complex128")
PAIRS = [(a, b) for a in KINDS for b in KINDS if {a, b} & {"complex", "float64", "complex128", "int8"}]
PAIRS += [("longdouble", "complex"), ("complex", "longdouble"), ("bool", "np.bool"), ("-0.0", "float64(-0.0)"), ("-huge", "uint64")]
PAIRS += [("beyond int64", "uint64"), ("beyond int64", "0-d float64"), ("0-d int64", "beyond int64"), ("all ones", "zero")]
PAIRS += [("complex", "0-d float64"), ("float64", "0-d complex"), ("0-d int64", "float16"), ("complex(-0.0)", "float64(-0.0)")]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", VALUES)
def test_one_scalar_under_every_operation(name: str) -> None:
    assert differences(UNARY, VALUES[name], None) == []


@pytest.mark.parametrize("name", ["int", "float", "-0.0", "complex", "complex(-0.0)"])
def test_a_number_that_changes_under_every_operation(name: str) -> None:
    assert differences(UNARY, VALUES[name], None, before=(changed(VALUES[name]), None)) == []


@pytest.mark.sampled(8)
@pytest.mark.parametrize("left", dict.fromkeys(a for a, _ in PAIRS))
def test_pairs_under_every_operator(left: str) -> None:
    wrong = {b: differences(BINARY, VALUES[left], VALUES[b]) for a, b in PAIRS if a == left}
    assert {b: found for b, found in wrong.items() if found} == {}


@pytest.mark.parametrize("left", ["int", "complex"])
def test_pairs_of_which_the_program_computes_one(left: str) -> None:
    """``x.sum()`` is a np.float64 that is not known at capture."""
    for right in ("float64", "float64(-0.0)", "float16", "complex128"):
        x = np.array([VALUES[right]])
        assert differences(BINARY, VALUES[left], x, prelude="    b = b.sum()\n") == [], right
        before = (changed(VALUES[left]), x)
        assert differences(BINARY, VALUES[left], x, prelude="    b = b.sum()\n", before=before) == [], right


@pytest.mark.fuzz
@pytest.mark.parametrize("left", VALUES)
def test_all_pairs_under_every_operator(left: str) -> None:
    wrong = {right: differences(BINARY, VALUES[left], VALUES[right]) for right in VALUES}
    assert {right: found for right, found in wrong.items() if found} == {}


def test_complex_and_a_computed_float_are_one_graph() -> None:
    compiled = dg.compile(lambda x: (1j * x.sum(), 2 - 1j + x[0], 1j - np.float64(2.0)), backend="reference")
    x = np.array([1.5, -0.0])
    assert [seen(v) for v in compiled(x)] == [seen(v) for v in (1j * x.sum(), 2 - 1j + x[0], 1j - np.float64(2.0))]
    assert [type(v) for v in compiled(x)] == [complex, complex, complex]
    assert not compiled.stats.breaks


@pytest.mark.parametrize("backend", ["reference", "c"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_products_of_complex_scalars_have_the_bits_of_numpys_scalars(dtype: str, backend: str) -> None:
    """np.multiply of arrays may round a sum of two products once; of scalars and in np.dot each product is rounded."""
    rng = np.random.default_rng(5)
    x = (rng.normal(size=300) + 1j * rng.normal(size=300)).astype(dtype)
    x[:3] = 1e300 - 4e299j if dtype == "complex128" else 1e30 - 4e29j, 1j * np.inf, np.nan

    def f(a: Any, b: Any) -> Any:
        c = a
        c *= b
        return a * b, np.dot(a, b), np.inner(a, b), np.vdot(a, b), c, 2.5 * a, 1j * a, 1j * a.real, a**2

    compiled = dg.compile(f, backend=backend)
    with dg.config.override(strict=True):
        for a, b in zip(x, x[::-1]):
            assert outcome(compiled, a, b) == outcome(f, a, b), (a, b)
    assert not compiled.stats.breaks
