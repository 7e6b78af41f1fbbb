"""The C prelude: accuracy against mpmath, special values against NumPy, and that loops over it vectorise."""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

from dynagraph.backends.prelude import prelude_for
from dynagraph.backends.toolchain import Toolchain, toolchain
from dynagraph.ir import dtypes
from dynagraph.ir.expr import FUNCTIONS

pytestmark = pytest.mark.sampled(12)

ROOT = Path(__file__).resolve().parents[2]
CTYPES = {d.suffix: "_Bool" if d.is_bool else d.ctype for d in dtypes.ALL}
DTYPES = {d.suffix: d.numpy.type for d in dtypes.ALL}
INTEGERS = [d.suffix for d in dtypes.ALL if d.is_integer]
ULP_BAR = {"f32": 4.0, "f64": 2.0}

UNARY: dict[str, Callable[[mp.mpf], mp.mpf]] = {
    "exp": mp.exp, "exp2": lambda x: mp.power(2, x), "expm1": mp.expm1, "log": mp.log, "log2": lambda x: mp.log(x, 2),
    "log10": mp.log10, "log1p": mp.log1p, "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "arcsin": mp.asin,
    "arccos": mp.acos, "arctan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "arcsinh": mp.asinh,
    "arccosh": mp.acosh, "arctanh": mp.atanh, "erf": mp.erf, "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
}  # fmt: skip
BINARY: dict[str, Callable[[mp.mpf, mp.mpf], mp.mpf]] = {"pow": mp.power, "arctan2": mp.atan2, "hypot": mp.hypot}
VECTORISED = [
    *UNARY,
    *BINARY,
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "sign",
    "fmod",
    "remainder",
    "floordiv",
    "logaddexp",
]
RARE = ["sin", "cos", "tan", "fmod", "remainder", "floordiv"]  # through DG_RARE
FLOAT_EXACT_UNARY = ["sign", "neg", "abs", "isnan", "isinf", "isfinite", "signbit", "frexp_mantissa", "frexp_exponent"]
FLOAT_EXACT_BINARY = ["maximum", "minimum", "fmax", "fmin", "floordiv", "remainder", "fmod", "copysign", "nextafter"]
INTEGER_UNARY = ["sign", "neg", "abs", "invert"]
INTEGER_BINARY = ["maximum", "minimum", "fmax", "fmin", "floordiv", "remainder", "fmod", "shl", "shr", "pow_int", "gcd", "lcm"]
BOOL_UNARY = ["abs", "invert"]
BOOL_BINARY = ["maximum", "minimum", "fmax", "fmin", "add", "mul"]
CASTS = [*INTEGERS, "b8"]
NUMPY_NAMES = {"floordiv": "floor_divide", "neg": "negative", "abs": "absolute", "pow": "power", "pow_int": "power",
               "shl": "left_shift", "shr": "right_shift", "mul": "multiply"}  # fmt: skip
PREDICATES = {"isnan", "isinf", "isfinite", "signbit"}


def _rows() -> Iterator[tuple[str, str, int, str]]:
    """(function, suffix, operands, suffix of the result) of all that the tests call."""
    for s in ("f32", "f64"):
        for name in (*UNARY, *FLOAT_EXACT_UNARY):
            yield name, s, 1, "b8" if name in PREDICATES else s
        for name in (*BINARY, *FLOAT_EXACT_BINARY, "logaddexp", "logaddexp2"):
            yield name, s, 2, s
        for target in CASTS:
            yield f"cast_{s}", target, 1, target
    for s in INTEGERS:
        for name in INTEGER_UNARY:
            yield name, s, 1, s
        for name in INTEGER_BINARY:
            yield name, s, 2, s
    for name in BOOL_UNARY:
        yield name, "b8", 1, "b8"
    for name in BOOL_BINARY:
        yield name, "b8", 2, "b8"


def _loop(name: str, suffix: str, operands: int, result: str) -> str:
    source = name.removeprefix("cast_") if name.startswith("cast_") else suffix
    parameters = "".join(f"const {CTYPES[source]} *restrict {p}, " for p in "xy"[:operands])
    arguments = ", ".join(f"{p}[i]" for p in "xy"[:operands])
    return (
        f"void {name}_{suffix}({parameters}{CTYPES[result]} *restrict out, int64_t n) "
        f"{{ for (int64_t i = 0; i < n; ++i) out[i] = dg_{name}_{suffix}({arguments}); }}"
    )


class Library:
    """The loops, compiled."""

    def __init__(self, folder: Path, rows: list[tuple[str, str, int, str]], compiler: Toolchain):
        source = prelude_for({f"dg_{name}_{suffix}" for name, suffix, _, _ in rows})
        image = compiler.compile("\n".join([source, *(_loop(*row) for row in rows)]))
        path = folder / "prelude.so"
        path.write_bytes(image)
        self.library = ctypes.CDLL(str(path))
        self.results = {(name, suffix): DTYPES[result] for name, suffix, _, result in rows}

    def __call__(self, name: str, suffix: str, *operands: np.ndarray) -> np.ndarray:
        arrays = [np.ascontiguousarray(a) for a in operands]
        out: np.ndarray = np.empty(arrays[0].shape, self.results[name, suffix])
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
        self.library[f"{name}_{suffix}"](*pointers, ctypes.c_int64(out.size))
        return out


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Invalid, overflowing and vanishing values are the point here."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("prelude"), list(_rows()), toolchain())


# -- points ---------------------------------------------------------------------------------------------------------
def special_values(suffix: str) -> np.ndarray:
    """Zeros, infinities, NaN, denormals, edges of overflow and of the polynomials; and what is next to them."""
    dtype = DTYPES[suffix]
    limits = np.finfo(dtype)
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 7, 10, 20, -20, 1e-3, 1e-12, 1e22,
              limits.max, -limits.max, limits.tiny, -limits.tiny, limits.smallest_subnormal, -limits.smallest_subnormal,
              np.pi / 4, np.pi / 2, np.pi, 2 * np.pi, np.sqrt(2) - 1, np.sqrt(2) + 1, np.sqrt(2), np.sqrt(0.5),
              2.0**17, 2.0**30, -(2.0**31), 2.0**31, 2.0**63, -(2.0**63), 255.0, 256.0, -1.5, 2.5]  # fmt: skip
    if suffix == "f32":
        values += [88.72, 88.8, -87.3, -103.9, -104, -150, -149, 127.9, 128, 89.4, 89.5, 9.1, 4, 16384]
    else:
        values += [709.78, 709.79, -708.4, -745.1, -745.2, 1023.9, 1024, -1074, -1075, 710.4, 710.5, 19.1, 6, 1e300]
    here: np.ndarray = np.array(values, dtype)
    return np.concatenate([here, np.nextafter(here, dtype(np.inf)), np.nextafter(here, dtype(-np.inf))])


def random_values(suffix: str, rng: np.random.Generator, count: int = 60) -> np.ndarray:
    """Over the whole range by bit patterns, and where functions are interesting."""
    dtype = DTYPES[suffix]
    unsigned = np.uint32 if suffix == "f32" else np.uint64
    bits: np.ndarray = rng.integers(0, np.iinfo(unsigned).max, count, dtype=unsigned, endpoint=True).view(dtype)
    largest = 89.0 if suffix == "f32" else 710.0
    spans = [(-1.0, 1.0), (0.4, 2.5), (-12.0, 12.0), (-1.2 * largest, largest), (-1e6, 1e6), (1e7, 1e9)]
    ranges = [rng.uniform(low, high, count) for low, high in spans]
    near = np.round(rng.uniform(-1e4, 1e4, count)) * (np.pi / 2)  # where sines vanish
    small = np.exp(rng.uniform(-30, 0, count)) * rng.choice([-1, 1], count)
    return np.concatenate([bits, np.concatenate([*ranges, near, small, 1 + small]).astype(dtype)])


# -- accuracy -------------------------------------------------------------------------------------------------------
def ulp_error(result: float, exact: mp.mpf, suffix: str) -> float:
    """The distance in units of the last place of the exact value; a right infinity counts as the next power of two."""
    bits, lowest = (24, -149) if suffix == "f32" else (53, -1074)
    exponent = mp.frexp(exact)[1] if exact != 0 else lowest
    unit = mp.ldexp(1, max(int(exponent) - bits, lowest))
    value = mp.mpf(result)
    if np.isnan(result):
        return float("inf")
    if np.isinf(result):
        value = mp.sign(result) * mp.ldexp(1, 128 if suffix == "f32" else 1024)
        if abs(exact) > abs(value):
            return 0.0
    return float(abs(value - exact) / unit)


def exact_value(f: Callable[..., mp.mpf], *operands: float) -> mp.mpf | None:
    """The value with 60 digits; None where it is not a finite real number."""
    if not all(np.isfinite(v) for v in operands):
        return None
    with mp.workdps(60):
        try:
            value = f(*(mp.mpf(v) for v in operands))
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
    return value if isinstance(value, mp.mpf) and mp.isfinite(value) else None


@pytest.mark.parametrize("suffix", ["f32", "f64"])
@pytest.mark.parametrize("name", UNARY)
def test_accuracy(native: Library, name: str, suffix: str) -> None:
    rng = np.random.default_rng(list(UNARY).index(name))
    x = np.concatenate([special_values(suffix), random_values(suffix, rng)])
    if name in ("exp", "exp2", "expm1", "sinh", "cosh"):
        x = x[~(np.abs(x) > 3000)]  # mpmath writes down every digit
    worst, compared = (0.0, 0.0), 0
    for point, result in zip(x.tolist(), native(name, suffix, x).tolist(), strict=True):
        exact = exact_value(UNARY[name], point)
        if exact is not None:
            compared += 1
            worst = max(worst, (ulp_error(result, exact, suffix), point))
    assert compared > 100
    assert worst[0] <= ULP_BAR[suffix], f"{worst[0]:.2f} ulp at {worst[1]!r}"


@pytest.mark.parametrize("suffix", ["f32", "f64"])
@pytest.mark.parametrize("name", BINARY)
def test_accuracy_of_two_operands(native: Library, name: str, suffix: str) -> None:
    rng = np.random.default_rng(7)
    x, y = random_values(suffix, rng), rng.permutation(random_values(suffix, rng))
    if name == "pow":
        x = np.abs(x)
        reachable = rng.uniform(*((-104, 89) if suffix == "f32" else (-746, 710)), len(x))
        y = np.where(rng.random(len(x)) < 0.7, reachable / np.log(x.astype(np.float64)), rng.uniform(-20, 20, len(x)))
        y = y.astype(x.dtype)
    elif name == "arctan2":
        y = np.where(rng.random(len(x)) < 0.6, x * rng.uniform(-3, 3, len(x)).astype(x.dtype), y)
    worst: tuple[float, float, float] = (0.0, 0.0, 0.0)
    for a, b, result in zip(x.tolist(), y.tolist(), native(name, suffix, x, y).tolist(), strict=True):
        exact = exact_value(BINARY[name], a, b)
        if exact is not None:
            worst = max(worst, (ulp_error(result, exact, suffix), a, b))
    assert worst[0] <= ULP_BAR[suffix], f"{worst[0]:.2f} ulp at {worst[1]!r}, {worst[2]!r}"


# -- special values -------------------------------------------------------------------------------------------------
def numpy_function(name: str) -> Callable[..., np.ndarray]:
    if name == "erf":
        return np.vectorize(lambda v: float(mp.erf(v)) if v == v and v != 0 else v, otypes=[np.float64])
    if name.startswith("frexp"):
        return lambda x: np.frexp(x)[name == "frexp_exponent"].astype(x.dtype)
    function: Callable[..., np.ndarray] = getattr(np, NUMPY_NAMES.get(name, name))
    return function


def assert_same_kind(got: np.ndarray, want: np.ndarray, *operands: np.ndarray) -> None:
    """NaN, infinity, zero and sign as wanted, and other values nearly so (accuracy is another test's)."""
    for i in range(want.size):
        g, w = got[i], want[i]
        here = ", ".join(repr(a[i]) for a in operands)
        if np.isnan(w) or np.isnan(g):
            assert np.isnan(w) == np.isnan(g), f"({here}): {g!r}, not {w!r}"
        else:
            assert np.signbit(w) == np.signbit(g), f"({here}): {g!r}, not {w!r}"
            assert (g == w) or np.isclose(g, w, rtol=1e-5, atol=0) or abs(g - w) <= np.spacing(np.abs(w)), (
                f"({here}): {g!r}, not {w!r}"
            )


@pytest.mark.parametrize("suffix", ["f32", "f64"])
@pytest.mark.parametrize("name", UNARY)
def test_special_values(native: Library, name: str, suffix: str) -> None:
    x = special_values(suffix)
    want = numpy_function(name)(x).astype(x.dtype)
    assert_same_kind(native(name, suffix, x), want, x)


@pytest.mark.parametrize("suffix", ["f32", "f64"])
@pytest.mark.parametrize("name", [*BINARY, "logaddexp", "logaddexp2"])
def test_special_values_of_two_operands(native: Library, name: str, suffix: str) -> None:
    x, y = (a.ravel() for a in np.meshgrid(special_values(suffix), special_values(suffix)))
    want = numpy_function(name)(x, y)
    got = native(name, suffix, x, y)
    if name.startswith("logaddexp"):  # near 0 the result is what cancellation leaves, in NumPy as here
        scale = np.spacing(np.maximum(np.abs(x), 1))
        assert np.all((got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= 4 * scale))
    else:
        assert_same_kind(got, want, x, y)


def assert_same_bits(got: np.ndarray, want: np.ndarray, *operands: np.ndarray) -> None:
    assert got.dtype == want.dtype
    same = got == want
    if got.dtype.kind == "f":
        same = (same & (np.signbit(got) == np.signbit(want))) | (np.isnan(got) & np.isnan(want))
    wrong = np.flatnonzero(~same)
    assert wrong.size == 0, "; ".join(
        f"({', '.join(repr(a[i]) for a in operands)}): {got[i]!r}, not {want[i]!r}" for i in wrong[:5]
    )


@pytest.mark.parametrize("suffix", ["f32", "f64"])
@pytest.mark.parametrize("name", FLOAT_EXACT_UNARY)
def test_exact_functions(native: Library, name: str, suffix: str) -> None:
    x = np.concatenate([special_values(suffix), random_values(suffix, np.random.default_rng(1))])
    assert_same_bits(native(name, suffix, x), numpy_function(name)(x), x)


@pytest.mark.parametrize("suffix", ["f32", "f64"])
@pytest.mark.parametrize("name", FLOAT_EXACT_BINARY)
def test_exact_functions_of_two_operands(native: Library, name: str, suffix: str) -> None:
    rng = np.random.default_rng(2)
    x, y = (a.ravel() for a in np.meshgrid(special_values(suffix), special_values(suffix)))
    x, y = (np.concatenate([a, random_values(suffix, rng), np.round(rng.uniform(-9, 9, 200)).astype(a.dtype)]) for a in (x, y))
    want = numpy_function(name)(x, y)
    got = native(name, suffix, x, y)
    if name in ("fmax", "fmin"):  # NumPy's own loops differ in which zero they take
        got, want = got + 0, want + 0
    assert_same_bits(got, want, x, y)


@pytest.mark.parametrize("suffix", ["f32", "f64"])
@pytest.mark.parametrize("target", CASTS)
def test_casts_to_integers(native: Library, target: str, suffix: str) -> None:
    x = np.concatenate([special_values(suffix), random_values(suffix, np.random.default_rng(3))])
    want: np.ndarray = x.astype(DTYPES[target])
    got = native(f"cast_{suffix}", target, x)
    if target not in ("i32", "i64", "b8"):  # beyond what the processor converts to NumPy's loops differ among themselves
        inside = (x > -(2.0**31)) & (x < 2.0 ** {"u32": 32, "u64": 64}.get(target, 31))
        x, got, want = x[inside], got[inside], want[inside]
    assert_same_bits(got, want, x)


def integer_values(suffix: str) -> np.ndarray:
    limits = np.iinfo(DTYPES[suffix])
    near = [0, 1, 2, 3, 5, 7, 8, 31, 32, 33, 63, 64, 65, 100, limits.max, limits.max - 1, limits.min, limits.min + 1]
    if limits.min < 0:
        near += [-1, -2, -3, -7, -8, -100]
    return np.array(near, DTYPES[suffix])


@pytest.mark.parametrize("suffix", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_UNARY)
def test_integer_functions(native: Library, name: str, suffix: str) -> None:
    x = integer_values(suffix)
    assert_same_bits(native(name, suffix, x), numpy_function(name)(x), x)


@pytest.mark.parametrize("suffix", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_BINARY)
def test_integer_functions_of_two_operands(native: Library, name: str, suffix: str) -> None:
    x, y = (a.ravel() for a in np.meshgrid(integer_values(suffix), integer_values(suffix)))
    if name == "pow_int":
        x, y = x[y >= 0], y[y >= 0]
    assert_same_bits(native(name, suffix, x, y), numpy_function(name)(x, y), x, y)


@pytest.mark.parametrize("name", [*BOOL_UNARY, *BOOL_BINARY])
def test_bools(native: Library, name: str) -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    operands = (x,) if name in BOOL_UNARY else (x, y)
    assert_same_bits(native(name, "b8", *operands), numpy_function(name)(*operands), *operands)


EXTREMES = ("maximum", "minimum", "fmax", "fmin")


def _extremes_of_extremes(name: str, suffix: str) -> str:
    ctype, of = CTYPES[suffix], f"dg_{name}_{suffix}"
    return (
        f"void {name}_of_{name}_{suffix}(const {ctype} *restrict x, const {ctype} *restrict y, {ctype} *restrict out, int64_t n) "
        f"{{ for (int64_t i = 0; i < n; ++i) out[i] = {of}({of}(x[i], y[i] + 1), {of}(y[i], {of}(x[i] * 2, y[i]) - 1)); }}"
    )


# -- the whole ------------------------------------------------------------------------------------------------------
def test_loops_vectorise(tmp_path: Path) -> None:
    compiler = toolchain()
    loops = [_loop(name, s, FUNCTIONS[name].arity, s) for name in VECTORISED for s in ("f32", "f64")]
    loops += [_extremes_of_extremes(name, s) for name in EXTREMES for s in ("f32", "f64")]
    prelude = prelude_for({f"dg_{name}_{s}" for name in VECTORISED for s in ("f32", "f64")})
    source = tmp_path / "loops.c"
    source.write_text("\n".join([prelude, *loops]))
    clang = "clang" in compiler.version
    report = "-Rpass=loop-vectorize" if clang else "-fopt-info-vec"
    command = [*compiler.words, report, str(source), "-o", str(tmp_path / "loops.so"), "-lm"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    first = prelude.count("\n") + 2
    vectorised = {int(line.split(":")[1]) for line in said.splitlines() if "vectorized" in line and "loops.c:" in line}
    slow = {loop.split("(")[0].removeprefix("void ") for k, loop in enumerate(loops) if first + k not in vectorised}
    if clang:  # which has no vector versions of what DG_RARE defines
        slow -= {f"{name}_{s}" for name in RARE for s in ("f32", "f64")}
    assert not slow


X86_LEVELS = [(), ("-mno-avx512f",), ("-mno-avx2", "-mno-fma"), ("-mno-avx",)]  # each with other vectors


@pytest.mark.parametrize("flags", X86_LEVELS if platform.machine() == "x86_64" else [()])
def test_rare_arguments_on_every_kind_of_vector(flags: tuple[str, ...], tmp_path: Path) -> None:
    names = ["sin", "cos", "tan", "fmod"]
    rows = [(name, s, FUNCTIONS[name].arity, s) for name in names for s in ("f32", "f64")]
    compiler = replace(toolchain(), flags=(*toolchain().flags, *flags))
    library = Library(tmp_path, rows, compiler)
    rng = np.random.default_rng(4)
    for name, suffix, operands, _ in rows:
        x: np.ndarray = np.concatenate([rng.uniform(-1e6, 1e6, 700), np.exp(rng.uniform(-20, 80, 333))]).astype(DTYPES[suffix])
        x = rng.permutation(x)
        if operands == 2:
            y = np.full_like(x, 0.7)
            assert_same_bits(library(name, suffix, x, y), np.fmod(x, y), x)
        else:
            exact = [exact_value(UNARY[name], v) for v in x.tolist()]
            results = library(name, suffix, x).tolist()
            worst = max(ulp_error(r, e, suffix) for r, e in zip(results, exact, strict=True) if e is not None)
            assert worst <= ULP_BAR[suffix]


def test_only_what_is_used_is_there() -> None:
    text = prelude_for({"dg_floordiv_i64", "dg_remainder_i64"})
    assert "dg_floordiv_i64(" in text and "dg_remainder_i64(" in text
    assert text.count("\nDG_INL ") == 2
    closure = prelude_for({"dg_logaddexp_f32"})
    assert "dg_log1p_f32(" in closure and "dg_exp_f32(" in closure and "_f64(" not in closure.split("dg_binary_f64;")[1]


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError, match="dg_nonsense_f32"):
        prelude_for({"dg_nonsense_f32"})


def test_every_scalar_function_is_there() -> None:
    printed = {"add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "select", "not", "and", "or", "xor",
               "sqrt", "floor", "ceil", "trunc", "rint"}  # fmt: skip # as operators and builtins
    for row in FUNCTIONS.values():
        suffixes = ["f32", "f64"] if "f" in row.domain else []
        suffixes += INTEGERS if "i" in row.domain else []
        if row.name not in printed:
            prelude_for({f"dg_{row.name}_{s}" for s in suffixes})
        if row.name not in {"add", "sub", "neg", "eq", "ne", "select"} and "c" in row.domain:
            prelude_for({f"dg_{row.name}_{s}" for s in ("c64", "c128")})


def test_the_header_is_what_the_generator_prints() -> None:
    spec = importlib.util.spec_from_file_location("generate_prelude", ROOT / "scripts" / "generate_prelude.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    assert module.generate() == (ROOT / "dynagraph" / "backends" / "prelude.h").read_text()
