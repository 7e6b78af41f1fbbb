"""Constants against operators and operand forms, compiled by the C compiler, bit for bit with NumPy: signs of zeros included.

C compilers rewrite arithmetic with constants, and not always rightly: gcc 12 makes ``-e`` of ``0.0 - e`` where ``e`` cannot be
-0.0.  Our own rules (``ir/passes/simplify.py``) are under the same table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg

CONSTANTS = ["0.0", "-0.0", "1.0", "-1.0", "0.5", "inf", "nan", "0", "-1"]
FORMS = ["t(x)", "abs(t(x))", "-t(x)", "np.square(t(x))",
         "np.sqrt(abs(t(x)))", "t(x > 0)", "np.where(x > 0, t(x), t(1))"]  # fmt: skip
OPERATORS = ["c + e", "c - e", "e - c", "c * e", "c / e", "e / c", "c // e", "c % e", "-(c - e)", "c - -e", "e + -c",
             "np.maximum(e, c)", "np.copysign(c, e)"]  # fmt: skip
OF_COMPLEX = ["c + e", "c - e", "e - c", "c * e", "-(c - e)", "c - -e", "e + -c"]
OPERANDS = {
    "bool": [0, 1], "int8": [0, 1, -1, 7, -128], "int32": [0, 1, -1, 7], "int64": [0, 1, -1, 7, 2**53 + 1], "uint8": [0, 1, 255],
    "uint64": [0, 1, 2**63], "float16": [0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan],
    "float32": [0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan, 1e-40],
    "float64": [0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan],
    "complex64": [0.0, -0.0, 1.5 - 2j, complex(0.0, -0.0), complex(-0.0, 1)],
    "complex128": [0.0, 1.5 - 2j, complex(0.0, -0.0), complex(-0.0, 1)],
}  # fmt: skip
FAST = [("int32", "float64"), ("bool", "float32"), ("float64", "float64"), ("complex64", "complex64")]
ALL = [(source, target) for source in OPERANDS for target in ("float16", "float32", "float64", "complex64", "complex128")
       if not source.startswith("complex") or target.startswith("complex")]  # fmt: skip
AT_ONCE = 40  # expressions of one program


def table(target: str) -> list[str]:
    """The expressions, each of `x` and a constant."""
    names = {"c": CONSTANTS, "e": [re.sub(r"\bt\(", f"np.{target}(", form) for form in FORMS]}
    kept = [op for op in OPERATORS if not target.startswith("complex") or op in OF_COMPLEX]
    return [re.sub(r"\b[ce]\b", lambda m: c if m[0] == "c" else e, op) for e in names["e"] for c in names["c"] for op in kept
            if not target.startswith("complex") or ">" not in e]  # fmt: skip


def function(expressions: list[str]) -> Callable:
    names = {"np": np, "inf": math.inf, "nan": math.nan}
    exec("def f(x):\n    return [" + ", ".join(expressions) + "]\n", names)
    return names["f"]


def bits(x: np.ndarray) -> bytes:
    """Without the payloads and signs of NaN, which are nobody's promise."""
    parts = [x.real, x.imag] if x.dtype.kind == "c" else [x]
    return b"".join(np.where(np.isnan(p), p.dtype.type(math.nan), p).tobytes() for p in parts)


def wrong(expressions: list[str], x: np.ndarray) -> list[str]:
    """The expressions of which a compiled program gives other bits than NumPy."""
    f = function(expressions)
    compiled = dg.compile(f, backend="c")
    with np.errstate(all="ignore"), dg.config.override(strict=True):
        want, got = f(x), compiled(x)
    assert not compiled.stats.breaks, compiled.stats.breaks
    return [f"{e}: {g} for {w}" for e, g, w in zip(expressions, got, want) if g.dtype != w.dtype or bits(g) != bits(w)]


def check(source: str, target: str, sample: slice) -> None:
    x = np.array(OPERANDS[source] * 3, source)  # enough for vectors
    expressions = table(target)[sample]
    found = [w for k in range(0, len(expressions), AT_ONCE) for w in wrong(expressions[k : k + AT_ONCE], x)]
    assert found == [], f"{len(found)} of {len(expressions)}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("source", "target"), FAST)
def test_some_constants_against_operators(source: str, target: str) -> None:
    check(source, target, slice(None, None, 7))


@pytest.mark.fuzz
@pytest.mark.parametrize(("source", "target"), ALL)
def test_all_constants_against_operators(source: str, target: str) -> None:
    check(source, target, slice(None))


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool", "float32", "complex128"])
def test_zero_less_what_is_never_negative_zero(dtype: str) -> None:
    """0.0 - 0.0 is 0.0: gcc 12 makes -0.0 of it where the operand is an integer or an absolute value."""
    expressions = ["0.0 - abs(x)", "0.0 - np.float32(abs(x))", "0.0 - x", "-(0.0 - abs(x))", "np.zeros(12) - abs(x)"]
    assert wrong(expressions, np.zeros(12, dtype)) == []
