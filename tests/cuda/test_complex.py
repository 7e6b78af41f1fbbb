"""Functions of complex numbers in CUDA C: accuracy against mpmath, special values against NumPy, and that NVRTC takes them.

NumPy calls glibc's functions, so that its special values are C99's, and glibc's where C99 leaves a choice.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator

import mpmath as mp
import numpy as np
import pytest

from dynagraph.backends.cuda.nvrtc import compile_cuda
from dynagraph.backends.cuda.prelude import prelude_for
from dynagraph.ir.expr import FUNCTIONS
from tests.cuda import emulator

pytestmark = pytest.mark.sampled(20)

EXACT: dict[str, Callable[[mp.mpc], mp.mpc]] = {
    "log": mp.log, "log2": lambda z: mp.log(z) / mp.ln2, "log10": lambda z: mp.log(z) / mp.ln10, "sqrt": mp.sqrt,
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "arcsin": mp.asin, "arccos": mp.acos, "arctan": mp.atan,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "arcsinh": mp.asinh, "arccosh": mp.acosh, "arctanh": mp.atanh,
}  # fmt: skip
ULP_BAR = 5.0  # of each part
OPERATORS = {"add", "sub", "neg", "select", "eq", "ne"}  # of C, which have no function
NAMES = [name for name, row in FUNCTIONS.items() if "c" in row.domain and name not in OPERATORS]
NUMPY_NAMES = {"div": "divide", "mul": "multiply", "abs": "absolute", "pow": "power", "lt": "less", "le": "less_equal",
               "gt": "greater", "ge": "greater_equal"}  # fmt: skip
COMPLEX = {"c64": np.complex64, "c128": np.complex128}
REAL = {"c64": np.float32, "c128": np.float64}
every_precision = pytest.mark.parametrize("suffix", COMPLEX)
every_function = pytest.mark.parametrize("name", EXACT)


def kernel(name: str, suffix: str, index: str) -> str:
    """One function mapped over arrays; `index` sets `i` where it is below n."""
    arity, kind = FUNCTIONS[name].arity, FUNCTIONS[name].result
    real = {"c64": "float", "c128": "double"}[suffix]
    result = {"bool": "bool", "real": real}.get(kind, f"dg_{suffix}")
    parameters = "".join(f"const dg_{suffix} *{x}, " for x in "xy"[:arity])
    operands = ", ".join(f"{x}[i]" for x in "xy"[:arity])
    head = f'extern "C" __global__ void {name}_{suffix}({parameters}{result} *out, long long n)'
    return f"{head} {{ {index} out[i] = dg_{name}_{suffix}({operands}); }}"


def source(index: str, suffix: str) -> str:
    """All functions of complex numbers, each in a kernel."""
    return "\n".join([prelude_for({f"dg_{name}_{suffix}" for name in NAMES}), *(kernel(n, suffix, index) for n in NAMES)])


def call(name: str, suffix: str, *operands: np.ndarray) -> np.ndarray:
    """The function of arrays, one operand after the other, in the emulator."""
    function = emulator.compile(source("for (long long i = 0; i < n; ++i)", suffix)).function(f"{name}_{suffix}")
    result = {"bool": np.bool_, "real": REAL[suffix]}.get(FUNCTIONS[name].result, COMPLEX[suffix])
    arrays = [np.ascontiguousarray(a) for a in operands]
    out: np.ndarray = np.empty(arrays[0].shape, result)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
    emulator.launch(function, (1, 1, 1), (1, 1, 1), 0, [*pointers, ctypes.c_longlong(out.size)])
    return out


def numpy_function(name: str) -> Callable[..., np.ndarray]:
    function: Callable[..., np.ndarray] = getattr(np, NUMPY_NAMES.get(name, name))
    return function


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Invalid, overflowing and vanishing values are the point here."""
    with np.errstate(all="ignore"):
        yield


# -- points ---------------------------------------------------------------------------------------------------------------
def from_parts(re: np.ndarray, im: np.ndarray, suffix: str) -> np.ndarray:
    """re + i im, with the signs of zeros, and infinities beside anything."""
    z: np.ndarray = np.empty(re.shape, COMPLEX[suffix])
    z.real, z.imag = re, im
    return z


def grid(values: np.ndarray, suffix: str) -> np.ndarray:
    re, im = np.meshgrid(values, values)
    return from_parts(re.ravel(), im.ravel(), suffix)


def special_values(suffix: str) -> np.ndarray:
    """Every pair of zeros, infinities, NaN, edges of the range and of what the functions do in pieces, of both signs."""
    f = np.finfo(REAL[suffix])
    edges = [f.max, f.max / 2, f.tiny, f.smallest_subnormal, np.sqrt(f.max), np.sqrt(f.tiny), 1 + f.eps, 1 - f.epsneg]
    sizes = np.array([0, np.inf, *edges, 1, 2, 0.5, 3, 1e-5, 10, 20, 89, 90, 709, 711, np.pi / 2], REAL[suffix])
    return grid(np.concatenate([sizes, -sizes, np.array([np.nan], REAL[suffix])]), suffix)


def random_values(suffix: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """Of usual sizes, of all sizes, on either side of branch cuts, around 1 and i, around the unit circle, around poles."""
    largest, digits = (88, 37) if suffix == "c64" else (709, 300)

    def sign() -> np.ndarray:
        return rng.choice([-1.0, 1.0], count)

    def size(low: float, high: float) -> np.ndarray:
        return sign() * 10 ** rng.uniform(low, high, count)

    angle, turns = rng.uniform(0, 2 * np.pi, count), np.round(rng.uniform(-20, 20, count)) * (np.pi / 2)
    near_one, radius = sign() * (1 + size(-16, -1)), 1 + size(-17, -1)
    parts = [
        (rng.uniform(-3, 3, count), rng.uniform(-3, 3, count)),
        (rng.uniform(-largest, largest, count), rng.uniform(-largest, largest, count)),
        (size(-digits, digits), size(-digits, digits)),
        (size(-8, 4), size(-8, 4)),
        (near_one, size(-20, 0)),
        (radius * np.cos(angle), radius * np.sin(angle)),
        (rng.uniform(-3, 3, count), size(-digits, 0)),
        (turns, size(-18, 0)),
    ]
    re, im = (np.concatenate(list(a)) for a in zip(*parts, strict=True))
    return from_parts(np.concatenate([re, im]), np.concatenate([im, re]), suffix)


# -- accuracy -------------------------------------------------------------------------------------------------------------
def ulp_error(result: float, exact: mp.mpf, suffix: str) -> float:
    """The distance in units of the last place of the exact value; infinity is right where that is beyond the largest number."""
    bits, lowest, highest = (24, -149, 128) if suffix == "c64" else (53, -1074, 1024)
    unit = mp.ldexp(1, max(int(mp.frexp(exact)[1]) - bits, lowest))
    if np.isnan(result):
        return float("inf")
    limit = mp.ldexp(1, highest)
    value = mp.sign(result) * limit if np.isinf(result) else mp.mpf(result)
    return float(abs(value - max(-limit, min(limit, exact))) / unit)


def exact_value(f: Callable[..., mp.mpc], *operands: complex) -> mp.mpc:
    """With digits enough for parts of sizes as different as there are."""
    sizes = [abs(part) for z in operands for part in (z.real, z.imag)]
    with mp.workprec(300 if all(1e-40 < s < 1e40 for s in sizes) else 3000):
        return mp.mpc(f(*(mp.mpc(z.real, z.imag) for z in operands)))


@every_precision
@every_function
def test_accuracy_of_each_part(name: str, suffix: str) -> None:
    z = random_values(suffix, np.random.default_rng(list(EXACT).index(name)), 40)
    z = z[np.isfinite(z) & (z.real != 0) & (z.imag != 0)]  # mpmath has no signed zeros
    if name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):  # mpmath writes down every digit
        z = z[(np.abs(z.real) < 1000) & (np.abs(z.imag) < 1000)]
    worst = (0.0, 0j)
    for point, result in zip(z.tolist(), call(name, suffix, z).tolist(), strict=True):
        exact = exact_value(EXACT[name], point)
        error = max(ulp_error(result.real, exact.real, suffix), ulp_error(result.imag, exact.imag, suffix))
        worst = max(worst, (error, point), key=lambda w: w[0])
    assert len(z) > 300
    assert worst[0] <= ULP_BAR, f"{worst[0]:.2f} ulp at {worst[1]!r}"


@every_precision
def test_accuracy_of_powers(suffix: str) -> None:
    rng = np.random.default_rng(0)
    base = random_values(suffix, rng, 12)
    base = base[np.isfinite(base) & (base != 0)]
    power = from_parts(rng.uniform(-9, 9, len(base)), rng.uniform(-9, 9, len(base)), suffix)
    power.imag[::4] = 0
    epsilon, compared = np.finfo(REAL[suffix]).eps, 0
    for x, y, result in zip(base.tolist(), power.tolist(), call("pow", suffix, base, power).tolist(), strict=True):
        logarithm = complex(y * exact_value(mp.log, x))
        if abs(logarithm.real) < (85 if suffix == "c64" else 700):
            compared += 1
            exact = exact_value(mp.power, x, y)
            assert abs(result - exact) <= (4 + 4 * abs(logarithm)) * epsilon * abs(exact), (x, y, result, exact)
    assert compared > 100


# -- special values -------------------------------------------------------------------------------------------------------
def assert_same(got: np.ndarray, want: np.ndarray, nearly: np.ndarray | None, *operands: np.ndarray) -> None:
    """NaN, infinity, zero and its sign as wanted in each part, other values off by no more than `nearly`, or 8 ULP of the part."""
    assert got.dtype == want.dtype
    if np.iscomplexobj(want):
        assert_same(got.real, want.real, nearly, *operands)
        assert_same(got.imag, want.imag, nearly, *operands)
        return
    same = (got == want) & (np.signbit(got) == np.signbit(want))
    close = np.abs(got - want) <= (8 * np.spacing(np.abs(want)) if nearly is None else nearly)
    close &= np.isfinite(got) & np.isfinite(want) & (np.signbit(got) == np.signbit(want))
    wrong = np.flatnonzero(~(same | close | (np.isnan(got) & np.isnan(want))))
    assert wrong.size == 0, f"{wrong.size}: " + "; ".join(
        f"({', '.join(repr(a[i]) for a in operands)}): {got[i]!r}, not {want[i]!r}" for i in wrong[:5]
    )


@every_precision
@every_function
def test_special_values(name: str, suffix: str) -> None:
    z = special_values(suffix)
    assert_same(call(name, suffix, z), numpy_function(name)(z), None, z)


@every_precision
@every_function
def test_numbers_of_every_size(name: str, suffix: str) -> None:
    unsigned = np.uint32 if suffix == "c64" else np.uint64
    bits = np.random.default_rng(1).integers(0, np.iinfo(unsigned).max, 20_000, dtype=unsigned, endpoint=True)
    z = np.concatenate([bits.view(COMPLEX[suffix]), random_values(suffix, np.random.default_rng(2), 1000)])
    assert_same(call(name, suffix, z), numpy_function(name)(z), None, z)


@every_precision
def test_special_values_of_powers(suffix: str) -> None:
    values = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, -2, 3, 2.5, 30], REAL[suffix])
    x, y = (a.ravel() for a in np.meshgrid(grid(values, suffix), grid(values, suffix)))
    got, want = call("pow", suffix, x, y), np.power(x, y)
    size = np.abs(y * np.log(x))
    nearly = (8 + 4 * np.where(np.isfinite(size), size, 0)) * np.finfo(REAL[suffix]).eps * np.abs(want)
    assert_same(got, want, nearly, x, y)


CUTS = {  # by function: a number on each of its branch cuts, which leave it as they lie on that axis
    "log": [-2], "log2": [-2], "log10": [-2], "sqrt": [-2], "arcsin": [-2, 2], "arccos": [-2, 2], "arctan": [-2j, 2j],
    "arcsinh": [-2j, 2j], "arccosh": [-2, 0.5], "arctanh": [-2, 2],
}  # fmt: skip


@every_precision
@pytest.mark.parametrize("name", CUTS)
def test_the_sign_of_zero_says_on_which_side_of_a_cut_a_number_lies(name: str, suffix: str) -> None:
    tiny = float(np.finfo(REAL[suffix]).tiny)
    for on_cut in CUTS[name]:
        sides = []
        for sign in (1.0, -1.0):
            at, beside = (
                np.array([complex(sign * d, on_cut.imag) if on_cut.imag else complex(on_cut.real, sign * d)], COMPLEX[suffix])
                for d in (0.0, tiny)
            )
            sides.append(call(name, suffix, at))
            np.testing.assert_allclose(sides[-1], call(name, suffix, beside), rtol=1e-6)
        assert abs(sides[0] - sides[1])[0] > 0.1


# Those have the size of the number as their measure: NumPy's parts are not better.
OTHERS = {name: 64 if name in ("exp", "exp2", "expm1", "log1p") else 4 for name in NAMES if name not in EXACT and name != "pow"}


@every_precision
@pytest.mark.parametrize("name", OTHERS)
def test_functions_that_are_made_of_real_ones(name: str, suffix: str) -> None:
    rng = np.random.default_rng(3)
    parts = np.array([0.0, -0.0, 1, -2.5, 3, np.inf, -np.inf, np.nan, 0.25], REAL[suffix])
    some = from_parts(rng.uniform(-9, 9, 500), rng.uniform(-9, 9, 500), suffix)
    x, y = (a.ravel() for a in np.meshgrid(grid(parts, suffix), grid(parts, suffix)))
    x, y = np.concatenate([x, some]), np.concatenate([y, rng.permutation(some)])
    operands = (x, y)[: FUNCTIONS[name].arity]
    got, want = call(name, suffix, *operands), numpy_function(name)(*operands)
    if want.dtype == np.bool_:
        np.testing.assert_array_equal(got, want)
    else:
        nearly = OTHERS[name] * np.finfo(REAL[suffix]).eps * np.maximum(np.abs(want), 1)
        assert_same(got, want, nearly, *operands)


# -- the text -------------------------------------------------------------------------------------------------------------
def test_the_functions_of_complex_numbers_are_in_files_that_use_them_only() -> None:
    assert "dg_csqrt" in prelude_for({"dg_sqrt_c64"}) and "dg_cpow" in prelude_for({"dg_pow_c128"})
    assert "dg_csqrt" not in prelude_for({"dg_mul_c64", "dg_exp_c128", "dg_log_f64"})


@every_precision
def test_nothing_is_left_of_what_c_compilers_build_in(suffix: str) -> None:
    assert re.findall(r"__builtin_\w+|__real__|__imag__|_Complex", source("", suffix)) == []


@pytest.mark.parametrize("mode", ["strict", "fast"])
@every_precision
def test_nvrtc_takes_them_and_nothing_is_spilled(suffix: str, mode: str) -> None:
    index = "long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n)"
    resources = compile_cuda(source(index, suffix), 90, mode).resources
    assert set(resources) == {f"{name}_{suffix}" for name in NAMES}
    for name, taken in resources.items():
        assert taken.spill_stores == taken.spill_loads == 0 and taken.stack <= 64 and taken.registers <= 48, (name, taken)
