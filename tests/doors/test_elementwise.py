"""Ufuncs and operators through the door: the whole promotion matrix, Python scalars, error parity."""

from __future__ import annotations

import operator
from functools import partial

import numpy as np
import pytest

from dynagraph.doors.numpy import Unsupported, lookup
from dynagraph.doors.numpy.elementwise import UFUNCS

from .harness import DTYPES, Trace, call, check, check_or_declined, declined, sample

pytestmark = pytest.mark.sampled(10)

UNARY = sorted((u for u in UFUNCS if u.nin == 1), key=lambda u: u.__name__)
BINARY = sorted((u for u in UFUNCS if u.nin == 2), key=lambda u: u.__name__)
SCALARS = (True, 0, 1, 2, 3, -1, 7, 300, 2**40, 2**63, -(2**63), 0.0, 0.5, -1.0, 2.0, 2.5, 1e300, float("inf"), float("nan"))
SCALARS += (2j, complex(-0.0, 1e300), complex("nan"))
SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-30, 3e38])
SPECIAL_COMPLEX = np.array([complex(x, y) for x in SPECIAL[:7] for y in SPECIAL[:7]])


def name(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ufunc", UNARY, ids=name)
def test_unary(ufunc, dtype):
    check_or_declined(ufunc, sample((3, 4), dtype))
    check_or_declined(ufunc, sample((), dtype))
    check_or_declined(ufunc, sample((2,), dtype)[0])


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("ufunc", UNARY, ids=name)
def test_unary_of_special_values(ufunc, dtype):
    if ufunc in (np.invert, np.bitwise_count):
        assert declined(ufunc, SPECIAL.astype(dtype)) == "NUMPY_ERROR"
    else:
        check(ufunc, SPECIAL.astype(dtype))


@pytest.mark.parametrize("dtype", ("complex64", "complex128"))
@pytest.mark.parametrize("ufunc", UNARY, ids=name)
def test_unary_of_complex_special_values(ufunc, dtype):
    x = SPECIAL_COMPLEX.astype(dtype)
    check_or_declined(ufunc, x)
    check_or_declined(ufunc, x[:1].reshape(()))


@pytest.mark.parametrize("dtype", ("complex64", "complex128"))
def test_operators_on_complex_special_values(dtype):
    x = SPECIAL_COMPLEX.astype(dtype)
    for op in OPERATORS:
        check_or_declined(op, x[:, None], x)
        check_or_declined(op, x[7], x[6])
    for exponent in (2, -1, 0.5, 2.0, -1.0, 3, 0, 2j, np.float64(2), np.complex128(0.5)):
        check(lambda a: (a**exponent, np.power(a, exponent), np.power(a, [exponent])), x)
    for function in (np.maximum, np.minimum, np.fmax, np.fmin):
        check(function, x[:, None], x)
    check(lambda a: (np.clip(a, 1j, 2), np.clip(a, None, 1), np.round(a), np.round(a, 1), np.nan_to_num(a)), x)
    check(lambda a: (np.isclose(a[:, None], a), np.isclose(a, a, equal_nan=True), np.angle(a), np.angle(a, deg=True)), x)
    check(lambda a: (a.real, a.imag, np.real(a), np.imag(a), a.conj(), np.conj(a), np.iscomplex(a), np.isreal(a)), x)
    check(lambda a: (a[8].real, a[8].imag, a[8].conj(), abs(a[8]), a[8] == a[9], a[8] * 2j), x)
    for reduction in (np.max, np.min, np.argmax, np.argmin, np.sum, np.prod, np.cumsum, np.cumprod, np.any, np.all, np.nansum):
        for k in range(len(x)):
            check(lambda a: reduction(a[k:]), x)
    assert declined(lambda a: a[0] < a[1], x) == "UNSUPPORTED_DTYPE"  # beside NaN scalars compare in another way


@pytest.mark.parametrize("ufunc", BINARY, ids=name)
def test_promotion_of_arrays(ufunc):
    for left in DTYPES:
        for right in DTYPES:
            check_or_declined(
                ufunc, sample((3, 4), left), sample((4,), right, seed=1), exact=ufunc is not np.float_power
            )


@pytest.mark.sampled(15)
@pytest.mark.parametrize("ufunc", BINARY, ids=name)
def test_promotion_with_python_scalars(ufunc):
    for dtype in DTYPES:
        for scalar in SCALARS:
            exact = ufunc is not np.float_power  # its pow is another one than power's
            check_or_declined(lambda x: ufunc(x, scalar), sample((5,), dtype), exact=exact)
            check_or_declined(lambda x: ufunc(scalar, x), sample((5,), dtype), exact=exact)


OPERATORS = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lshift,
    operator.rshift,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    divmod,
)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("op", OPERATORS, ids=name)
def test_operators(op):
    for dtype in DTYPES:
        x = sample((2, 3), dtype)
        for other in DTYPES:
            check_or_declined(op, x, sample((3,), other, seed=2))
            check_or_declined(op, x[0, 0], sample((3,), other, seed=2))
        for scalar in SCALARS:
            check_or_declined(lambda a: op(a, scalar), x)
            check_or_declined(lambda a: op(scalar, a), x)


@pytest.mark.parametrize("exponent", (2, 2.0, 0.5, -1, -1.0, 0, 1, 1.0, 3, -2, 0.25, True))
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_power_is_numpys_bit_for_bit(dtype, exponent):
    x = np.concatenate([SPECIAL, np.linspace(-3, 50, 101)]).astype(dtype)
    check(lambda a: a**exponent, x)
    check(lambda a: np.power(a, exponent), x)


INTEGERS = [d for d in DTYPES if "int" in d]


def at_the_limits(dtype):
    limits = np.iinfo(dtype)
    return np.array([0, 1, 3, 7, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype)


@pytest.mark.parametrize("op", [op for op in OPERATORS if op is not operator.pow], ids=name)
def test_operators_at_the_limits(op):
    """Wrapping, division of and by the least, shifts, and int64 beside uint64."""
    for left in INTEGERS:
        x = at_the_limits(left)
        for right in INTEGERS:
            check_or_declined(op, x[:, None], at_the_limits(right))
        for scalar in (0, -1, 255, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1):
            check_or_declined(lambda a: op(a, scalar), x)
            check_or_declined(lambda a: op(scalar, a), x)


def test_functions_of_integers_at_the_limits():
    for dtype in INTEGERS:
        x = at_the_limits(dtype)
        check(operator.invert, x)
        for function in (operator.neg, abs, np.sign, np.square, np.sum, np.prod, np.cumsum, np.max, np.min, np.argmin):
            check(function, x)
        for function in (np.maximum, np.minimum, np.fmax, np.fmod):
            for other in INTEGERS:
                check(function, x[:, None], at_the_limits(other))


def test_int64_and_uint64_compare_exactly():
    x, y = np.array([-1, 2**53 + 1, 2**63 - 1, -(2**63)]), np.array([2**64 - 1, 2**53, 2**63 - 1, 2**63], "uint64")
    for op in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        check(op, x[:, None], y)
        check(op, y[:, None], x)


def test_python_ints_beyond_int64():
    check(lambda: (call(np.array, 2**63, "uint64"), call(np.full, 2, 2**63, "uint64")))
    for function, args in ((np.array, (2**63,)), (np.full, ((2,), 2**64 - 1))):  # C's unsigned long long, not NumPy's uint64
        assert declined(lambda: call(function, *args)) == "UNSUPPORTED_DTYPE"
    check(lambda x: (x + 2**63, x < 2**64, x == -1, np.where(x > 3, x, 2**64 - 1)), sample((4,), "uint64"))
    check(lambda x: (x < 2**63, x >= -(2**63) - 1), sample((4,), "int64"))
    assert declined(lambda x: x + -1, sample((4,), "uint64")) == "NUMPY_ERROR"
    assert declined(lambda x: x + 2**63, sample((4,), "int64")) == "NUMPY_ERROR"


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_power(dtype):
    x = sample((20,), dtype)
    check(lambda a: a**3, x)
    check(lambda a: 2**a, sample((5,), "uint8"))
    assert declined(lambda a: a**-1, x) == "NUMPY_ERROR"
    check(lambda a, n: a**n, x, sample((20,), "uint8"))


def test_integer_power_refuses_negative_exponents():
    check(lambda a, n: a**n, sample((3,), "int64"), np.array([1, 2, 3]))
    assert declined(lambda a, n: a**n, sample((3,), "int64"), np.array([1, -2, 3])) == "DATA_DEPENDENT"


def test_python_int_out_of_range_is_numpys_error():
    with pytest.raises(Unsupported, match=r"Python integer 300 is out of bounds for uint8, which holds 0 to 255"):
        trace = Trace()
        trace.call(lookup(np.add), "add", call_input(trace), 300)


def call_input(trace: Trace):
    return trace.call(lookup(np.zeros), "zeros", 3, "uint8")


def test_comparison_with_python_int_out_of_range_is_by_value():
    check(lambda x: x < 300, sample((4,), "uint8"))
    check(lambda x: x == -1, sample((4,), "uint8"))
    check(lambda x: x >= 2**40, sample((4,), "int32"))


@pytest.mark.parametrize("keyword", ({"dtype": "float32"}, {"dtype": "float64"}, {"dtype": "int32"}, {"casting": "no"}))
def test_dtype_and_casting_keywords(keyword):
    for dtype in DTYPES:
        check_or_declined(lambda x: np.add(x, x, **keyword), sample((4,), dtype))
        check_or_declined(lambda x: np.exp(x, **keyword), sample((4,), dtype))


def test_out_and_where_are_declined():
    x = sample((3,), "float64")
    assert declined(lambda a: np.add(a, a, out=np.zeros(3)), x) == "IN_PLACE_WRITE"
    assert declined(lambda a: np.add(a, a, where=np.ones(3, bool)), x) == "UNSUPPORTED_ARGUMENT"


def test_writing_in_place_is_declined():
    def add_in_place(a):
        a += 1
        return a

    def assign(a):
        a[0] = 1
        return a

    x = sample((3,), "float64")
    assert declined(add_in_place, x) == "IN_PLACE_WRITE"
    assert declined(assign, x) == "IN_PLACE_WRITE"
    check(add_in_place, x[0])  # a NumPy scalar is bound anew


def test_truth_of_an_array():
    assert declined(lambda a: 1 if a else 2, sample((3,), "bool")) == "AMBIGUOUS_TRUTH"
    assert declined(lambda a: 1 if a else 2, sample((1,), "bool")) == "DATA_DEPENDENT"


def test_ufuncs_of_two_results():
    x = np.concatenate([SPECIAL, [2.75, -2.75]])
    check(np.modf, x)
    check(lambda a: np.divmod(a, 0.75), x)
    check(lambda a: divmod(a, a[:1]), sample((6,), "int64"))


@pytest.mark.parametrize("ufunc", (np.add, np.multiply, np.subtract, np.less, np.maximum), ids=name)
def test_outer(ufunc):
    check_or_declined(lambda a, c: ufunc.outer(a, c), sample((2, 3), "float32"), sample((4,), "int32"))
    check_or_declined(lambda a, c: ufunc.outer(a, 3), sample((2, 3), "float32"), 0)


# -- functions --------------------------------------------------------------------------------------------------------


def test_where_promotes():
    for left in DTYPES:
        for right in DTYPES:
            check(np.where, sample((3, 1), "bool"), sample((4,), left), sample((3, 4), right))
        for scalar in SCALARS:
            check_or_declined(lambda c, x: np.where(c, x, scalar), sample((4,), "int32"), sample((4,), left))
    check(lambda c: np.where(c, 1.0, 0), sample((4,), "bool"))
    check(lambda c: np.where(c, 1, False), sample((), "bool"))
    assert declined(np.where, sample((4,), "bool")) == "DATA_DEPENDENT"


BOUNDS = ((0, 5), (None, 5), (0, None), (None, None), (-1, 300), (1.5, 3), (-(2**40), 2**40), (5, 0))


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_clip(bounds):
    for dtype in DTYPES:
        x = sample((4, 5), dtype)
        check_or_declined(lambda a: np.clip(a, *bounds), x)
        check_or_declined(lambda a: a.clip(*bounds), x)
        check_or_declined(lambda a: np.clip(a, min=bounds[0], max=bounds[1]), x)
        check_or_declined(lambda a: np.clip(a, a[0], a.max()), x)
    check(lambda a: a.clip(*bounds), sample((3,), "float64"))


@pytest.mark.parametrize("decimals", (0, 1, 3, -1))
def test_round(decimals):
    for dtype in DTYPES:
        x = sample((4, 5), dtype)
        check_or_declined(lambda a: np.round(a, decimals), x)
        check_or_declined(lambda a: np.around(a, decimals=decimals), x)
        check_or_declined(lambda a: a.round(decimals), x)
    check(lambda a: np.round(a, decimals), np.array([0.5, 1.5, -0.5, 2.675, 1e20, np.nan]))


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "function", (np.nan_to_num, np.isposinf, np.isneginf, np.fix, np.sinc, np.iscomplexobj), ids=name
)
def test_functions_of_one_array(function):
    for dtype in DTYPES:
        check_or_declined(function, sample((3, 2), dtype))
        check_or_declined(function, sample((), dtype))
    check(function, SPECIAL)
    check(function, SPECIAL.astype("float32"))


def test_nan_to_num_with_values():
    check(lambda x: np.nan_to_num(x, nan=-1, posinf=5.5, neginf=-7), SPECIAL)


def test_isclose():
    for dtype in ("int32", "float32", "float64"):
        x = sample((6,), dtype)
        check(lambda a: np.isclose(a, a + 1), x)
        check(lambda a: np.isclose(a, 2.0, rtol=0.5), x)
        check(lambda a: np.isclose(a, a, equal_nan=True), x)
    check(lambda a: np.isclose(a, SPECIAL.tolist(), equal_nan=True), SPECIAL)
    assert declined(np.allclose, SPECIAL, SPECIAL) == "DATA_DEPENDENT"


def test_scalar_types_are_casts():
    for dtype in DTYPES:
        for target in (np.dtype(d).type for d in DTYPES):
            for shape in ((3,), (), (1, 1)):
                x = sample(shape, dtype)
                check(partial(call, target), x if dtype == "bool" else np.abs(x))
    check(lambda: call(np.float32, 2.5))
    assert declined(lambda: call(np.uint8, 300)) == "NUMPY_ERROR"


def test_lists_are_strong_operands():
    check(lambda x: x + [1, 2, 3], sample((3,), "float32"))
    check(lambda x: np.maximum(x, (0.5, 1.5, 2.5)), sample((3,), "float32"))


def test_symbolic_sizes_are_weak_integers():
    check(lambda x: x.sum(axis=0) / x.shape[0], sample((7, 3), "float32"), symbolic=True)
    for dtype in INTEGERS:
        check(lambda x: (x * x.size, x < x.shape[0]), sample((7, 3), dtype), symbolic=True)


def test_unknown_functions_are_not_found():
    assert lookup(np.unique) is None
    assert lookup(len) is None
    assert lookup(object()) is None


def test_spacing_of_every_float16():
    check(lambda a: np.spacing(a), np.arange(2**16, dtype=np.uint16).view(np.float16))
