"""Pointwise functions."""

from __future__ import annotations

import math

from tests.torch.table import A, Case, T, case, error, program

ANYWHERE = (
    "exp exp2 expm1 sin cos tan sinh cosh tanh asinh arcsinh atan arctan sigmoid neg negative abs absolute sgn square floor ceil trunc fix "
    "deg2rad rad2deg nan_to_num isnan isinf isfinite isreal logical_not angle positive conj conj_physical real"
).split()
POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal".split()
UNIT = "asin arcsin acos arccos atanh arctanh".split()
REAL = "sign round frac signbit isposinf isneginf".split()
COMPARISONS = "eq ne lt le gt ge not_equal less less_equal greater greater_equal".split()
ARITHMETIC = "add sub mul div subtract multiply divide true_divide".split()
BINARY = (
    "maximum minimum fmax fmin atan2 arctan2 hypot copysign nextafter logaddexp logaddexp2 heaviside remainder fmod floor_divide xlogy "
    "ldexp float_power pow"
).split()
BITS = "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm".split()
LOGIC = "logical_and logical_or logical_xor".split()
NO_SHARES = {"conj"}  # torch's is a view with a flag

CASES: list[Case] = [
    *(case(name, T(2, 3), **({"_shares": False} if name in NO_SHARES else {})) for name in ANYWHERE),
    *(case(name, T(2, 3, kind="special"), _grad=False, _inplace=False, _out=False, _dtypes="float32 float16 bfloat16") for name in [*ANYWHERE, *POSITIVE, *UNIT, *REAL]
      if name != "conj"),
    *(case(name, T(2, 3, kind="positive")) for name in POSITIVE),
    *(case(name, T(2, 3, kind="unit")) for name in UNIT),
    case("acosh", T(4, kind="ones"), _second=False),
    case("acosh", T(4, kind="positive"), _second=False),
    *(case(name, T(2, 3)) for name in REAL),
    *(case(name, T(0, 3), _dtypes="") for name in ("exp", "floor", "neg", "isnan", "abs", "sigmoid")),
    *(case(name, T(kind="positive"), _dtypes="float32") for name in ("exp", "log", "floor", "neg", "abs", "sigmoid", "sqrt")),
    *(case(name, T(4, 3, layout=layout), _dtypes="") for name in ("exp", "abs", "clone", "round") for layout in ("T", "step", "expand", "offset")),
    case("exp", T(2, 3, 4, 5, layout="channels_last"), _dtypes=""),
    case("round", T(2, 3), decimals=2),
    case("round", T(2, 3), decimals=-1),
    case("nan_to_num", T(8, kind="special"), 1.5),
    case("nan_to_num", T(8, kind="special"), nan=1.5, posinf=7.0, neginf=-7.0),
    case("abs", T(2, 3, kind="zeros")),
    case("sgn", T(2, 3, kind="zeros")),
    case("sqrt", T(3, kind="zeros"), _second=False),
    case("pow", T(3, kind="zeros"), 2),
    case("pow", T(3, kind="zeros"), 1),
    case("pow", T(3, kind="zeros"), 0),
    # two operands
    *(case(name, T(2, 3), T(2, 3)) for name in ARITHMETIC),
    *(case(name, T(2, 3), T(3)) for name in ARITHMETIC),
    *(case(name, T(2, 1), T(3)) for name in ("add", "mul", "div")),
    *(case(name, T(2, 3), 2) for name in ARITHMETIC),
    *(case(name, T(2, 3), 2.5) for name in ARITHMETIC),
    *(case(name, T(2, 3), True, _inplace=False) for name in ("add", "mul", "div")),
    *(case(name, T(2, 3), 1 + 2j, _inplace=False) for name in ("add", "mul", "div", "sub")),
    *(case(name, T(2, 3), T(3), alpha=2) for name in ("add", "sub")),
    *(case(name, T(2, 3), T(3), alpha=0.5) for name in ("add", "sub")),
    *(case(name, T(2, 3), 3, alpha=2) for name in ("add", "sub", "rsub")),
    case("rsub", T(2, 3), T(2, 3)),
    case("rsub", T(2, 3), 3),
    *(case(name, T(2, 3, kind="positive"), T(2, 3, kind="positive")) for name in BINARY),
    *(case(name, T(2, 3), T(3, kind="positive")) for name in BINARY if name not in ("pow", "float_power", "xlogy")),
    *(case(name, T(2, 3, kind="ints"), T(2, 3, kind="ints"), _grad=False, _out=False, _inplace=False) for name in BINARY),
    *(case(name, T(3, 9, kind="special"), T(3, 9, kind="special"), _grad=False, _dtypes="float32", _out=False)
      for name in [*BINARY, *ARITHMETIC, *COMPARISONS, *LOGIC]),
    *(case(name, T(2, 3, kind="ints"), T(2, 3, kind="ints"), _second=False, _dtypes="") for name in ("maximum", "minimum", "fmax", "fmin")),
    *(case(name, T(2, 3, kind="positive"), 2) for name in ("remainder", "fmod", "floor_divide", "float_power", "pow", "xlogy")),
    *(case(name, T(2, 3), 1.5, _grad=name != "pow") for name in ("remainder", "fmod", "floor_divide", "pow")),
    *(case(name, T(2, 3), -2) for name in ("remainder", "fmod", "floor_divide")),
    *(case("pow", T(2, 3, kind="positive"), e) for e in (0, 1, 2, 3, 0.5, -1, -2, -0.5, 2.5)),
    case("pow", 2, T(2, 3)),
    case("pow", 2.5, T(2, 3)),
    case("float_power", 2, T(2, 3)),
    case("remainder", 2, T(2, 3, kind="positive"), _dtypes="float32", _grad=False),
    case("xlogy", 2, T(2, 3, kind="positive")),
    error("pow", T(2, 3, dtype="int64"), -1),
    case("div", T(2, 3), T(2, 3, kind="positive"), rounding_mode="floor"),
    case("div", T(2, 3), T(2, 3, kind="positive"), rounding_mode="trunc"),
    case("div", T(2, 3), 2, rounding_mode="floor"),
    case("div", T(2, 3), -2, rounding_mode="trunc"),
    error("div", T(2, 3), 2, rounding_mode="round", _text=True),
    *(case(name, T(2, 3, kind="ints"), T(2, 3, kind="ints"), _grad=False) for name in [*COMPARISONS, *LOGIC]),
    *(case(name, T(2, 3, kind="ints"), 1, _grad=False) for name in COMPARISONS),
    *(case(name, T(2, 3, kind="ints"), 1.5, _grad=False) for name in COMPARISONS),
    *(case(name, T(2, 3, dtype="uint8"), 456, _grad=False) for name in COMPARISONS),
    *(case(name, T(2, 3, dtype="uint8"), -1, _grad=False) for name in COMPARISONS),
    *(case(name, T(2, 3, dtype=d), T(3, dtype=d, kind="positive")) for name in BITS for d in ("int64", "int32", "uint8", "int8")),
    *(case(name, T(2, 3, dtype="bool"), T(3, dtype="bool")) for name in BITS[:3]),
    *(case(name, T(2, 3, dtype="int32"), 2) for name in BITS[:5]),
    *(error(name, T(2, 3), T(2, 3)) for name in BITS),
    *(case("bitwise_not", T(2, 3, dtype=d)) for d in ("int64", "uint8", "bool")),
    error("bitwise_not", T(2, 3)),
    *(case(name, T(2, 3, dtype=a), T(3, dtype=b), _inplace=False) for name in ("add", "mul", "div", "maximum")
      for a, b in [("int32", "float32"), ("int64", "float16"), ("int32", "int64"), ("uint8", "int8"), ("bool", "int32"), ("float16", "bfloat16"),
                   ("float32", "complex128"), ("int32", "int32"), ("bool", "bool"), ("float32", "float64"), ("float16", "complex64")]
      if not (name == "maximum" and "complex" in b)),
    *(case(name, T(2, 3, dtype=a), T(dtype=b), _inplace=False, _tolerance=1e5) for name in ("add", "mul", "div")
      for a, b in [("int32", "float64"), ("float32", "float64"), ("int32", "int64"), ("uint8", "int64"), ("bool", "int32")]),
    *(case(name, T(dtype=a), T(dtype=b), _inplace=False, _tolerance=1e5) for name in ("add", "mul") for a, b in [("int32", "float64"), ("float32", "float64")]),
    *(case("add", T(2, 3, dtype=d), v, _inplace=False) for d in ("bool", "uint8", "int32", "float32", "float16") for v in (True, 300, -1, 2.5, 1j)
      if (d, v) != ("float16", 1j)),
    *(case("mul", 2.0, T(2, 3), _method=False) for _ in "x"),
    error("add", T(2, 3), T(2, 4), _text=True),
    error("mul", T(2, 3), T(4, 3), _text=True),
    error("add", T(2, 3), "a"),
    error("add", T(2, 3), None),
    error("exp", 3.0),
    error("sub", T(2, dtype="bool"), T(2, dtype="bool"), _text=True),
    error("sub", T(2, dtype="bool"), T(2), _text=True),
    error("neg", T(2, dtype="bool"), _text=True),
    error("add", T(2, dtype="int64"), T(2, dtype="int64"), alpha=1.5, _text=True),
    error("add", T(2), T(2), alpha=True),
    error("floor_divide", T(2, dtype="int64"), 0),
    error("remainder", T(2, dtype="int64"), 0),
    error("Tensor.add_", T(2), T(3, 2), _text=True),
    error("Tensor.add_", T(2, dtype="int64"), 1.5, _text=True),
    error("Tensor.div_", T(2, dtype="int64"), 2, _text=True),
    error("Tensor.add_", T(2, 3, layout="expand"), 1.5, _text=True),
    # three operands
    case("addcmul", T(2, 3), T(2, 3), T(3)),
    case("addcmul", T(2, 3), T(2, 3), T(3), value=2),
    *(program(f"{name} of {dtype} is rounded once", lambda torch, x, y, z, name=name, dtype=dtype: _of_halves(torch, name, dtype, x, y, z),
              T(40, grad=False), T(40, grad=False), T(40, grad=False, kind="positive"), _grad=False, _dtypes="")
      for name in ("addcmul", "addcdiv", "lerp") for dtype in ("float16", "bfloat16")),
    case("addcdiv", T(2, 3), T(2, 3), T(3, kind="positive")),
    case("addcdiv", T(2, 3), T(2, 3), T(3, kind="positive"), value=0.5),
    error("addcdiv", T(2, dtype="int64"), T(2, dtype="int64"), T(2, dtype="int64")),
    case("lerp", T(2, 3), T(2, 3), 0.3),
    case("lerp", T(2, 3), T(2, 3), 0.7),
    case("lerp", T(2, 3), T(3), T(2, 3, kind="unit")),
    error("lerp", T(2), T(2, dtype="float32"), 0.5),
    *(case(name, T(3, 4), **bounds) for name in ("clamp", "clip")
      for bounds in ({"min": -0.5}, {"max": 0.5}, {"min": -0.5, "max": 0.5}, {"min": 0.5, "max": -0.5}, {"min": -1, "max": 1})),
    case("clamp", T(3, 4, kind="ints"), -1, 1),
    case("clamp", T(3, 4, kind="special"), -1, 1, _second=False),
    case("clamp", T(3, 4), T(4), T(3, 1)),
    case("clamp", T(3, 4), min=T(4)),
    case("clamp", T(3, 4), max=T(4)),
    case("clamp", T(3, 4, kind="ints"), T(4, kind="ints"), T(4, kind="ints")),
    case("clamp", T(3, 4, dtype="int64"), 0.5),
    case("clamp_min", T(3, 4), 0.0),
    case("clamp_max", T(3, 4), 0.0),
    case("clamp_min", T(3, 4), T(4)),
    case("clamp_max", T(3, 4), T(4)),
    error("clamp", T(3)),
    case("where", T(2, 3, kind="bool"), T(2, 3), T(3), _method=False),
    case("where", T(2, 3, kind="bool"), T(2, 3), 0.0, _method=False),
    case("where", T(2, 3, kind="bool"), 1, T(2, 3), _method=False),
    case("where", T(2, 3, kind="bool"), 1, 2, _method=False),
    case("where", T(2, 3, kind="bool"), 1.0, 2, _method=False),
    case("where", T(2, 3, kind="bool"), T(2, 3, dtype="float32"), T(dtype="float64"), _grad=False, _method=False),
    case("where", T(2, 3, kind="bool"), _method=False),
    case("Tensor.where", T(2, 3), T(2, 3, kind="bool"), T(3)),
    program("where of what is NaN elsewhere", lambda torch, x: torch.where(x > 0, x.sqrt(), 0), T(6), _second=False),
    error("where", T(2, dtype="float32"), T(2), T(2)),
    case("isclose", T(4, kind="special"), T(4, kind="special"), _grad=False, _dtypes="float32"),
    case("isclose", T(4, kind="special"), T(4, kind="special"), equal_nan=True, _grad=False, _dtypes="float32"),
    case("isclose", T(4), T(4), rtol=0.5, atol=0.1, _grad=False),
    case("allclose", T(4), T(4)),
    case("equal", T(4), T(4)),
    case("equal", T(4), T(3)),
    program("equal to itself", lambda torch, x: (torch.equal(x, x), torch.allclose(x, x), x.equal(x.clone())), T(3)),
    case("complex", T(2, 3, dtype="float64"), T(3, dtype="float64")),
    case("polar", T(2, 3, kind="positive", dtype="float64"), T(3, dtype="float64")),
    *(case(name, T(2, 3, dtype="complex128")) for name in ("real", "angle", "abs", "sgn", "conj_physical", "is_complex")),
    case("imag", T(2, 3, dtype="complex128")),
    error("imag", T(2, 3)),
    case("resolve_conj", T(2, 3)),
    case("resolve_neg", T(2, 3)),
    # operators
    program("operators with numbers", lambda torch, x: (x + 1, 1 + x, x - 1, 1 - x, x * 2, 2 * x, x / 2, 2 / x, -x, +x, abs(x)), T(2, 3, kind="positive")),
    program("operators that round", lambda torch, x: (x // 2, 2 // x, x % 2, 2 % x), T(2, 3, kind="positive"), _grad=False),
    program("powers", lambda torch, x: (x**2, 2**x, x**x, x**0.5, x**-1), T(2, 3, kind="positive")),
    program("comparisons", lambda torch, x: (x < 1, x <= 1, x > 1, x >= 1, x == 1, x != 1, 1 < x), T(2, 3, kind="ints")),
    program("bit operators", lambda torch, x: (x & 3, 3 & x, x | 3, x ^ 3, 3 ^ x, ~x, x << 1, x >> 1, 1 << (x & 3)), T(2, 3, dtype="int64")),
    program("logic operators", lambda torch, x, y: (x & y, x | y, x ^ y, ~x), T(5, dtype="bool"), T(5, dtype="bool")),
    program("operators in place", lambda torch, x: _changed(x.clone()), T(2, 3)),
    program("comparison with None", lambda torch, x: (x == None, x != None), T(2)),  # noqa: E711
    program("NumPy beside", lambda torch, x: (x * 2 + x.detach().numpy(), ), T(2), _grad=False),
    case("frexp", T(4), _grad=False, _inplace=False),
    case("is_same_size", T(2, 3), T(2, 3)),
    program("alpha of numbers", lambda torch, x: torch.add(x, math.pi, alpha=2), T(2)),
    program("result_type", lambda torch, x: [str(torch.result_type(x, v)) for v in (1, 2.0, True, 1j)], T(2), _dtypes="float32 int64 bool"),
    program("promote_types", lambda torch: [str(torch.promote_types(getattr(torch, a), getattr(torch, b))) for a in _ALL for b in _ALL]),
    program("can_cast", lambda torch: [torch.can_cast(getattr(torch, a), getattr(torch, b)) for a in _ALL for b in _ALL]),
    case("clone", T(2, 3, 4, 5, layout="channels_last"), memory_format=A("contiguous_format")),
]

_ALL = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()


def _of_halves(torch, name, dtype, *tensors):  # type: ignore[no-untyped-def]
    halves = [t.to(getattr(torch, dtype)) for t in tensors]
    more = {} if name == "lerp" else {"value": 0.3}
    written = getattr(halves[0].clone(), f"{name}_")(*halves[1:], **more)
    return getattr(torch, name)(*halves, **more).double(), written.double(), written


def _changed(x):  # type: ignore[no-untyped-def]
    before = x
    x += 1
    x *= 2
    x -= 0.5
    x /= 3
    x **= 2
    return x, before is x
