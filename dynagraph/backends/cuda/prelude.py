"""CUDA prelude: the scalar functions of one generated file, CUDA's own or translated from prelude.h.

CUDA's functions have C's special values, as the prelude's, and errors of the same size; CuPy computes by them too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Set
from importlib import resources

from dynagraph.backends.prelude import definitions
from dynagraph.ir.expr import FUNCTIONS

_HALVES = {
    "dg_load_f16": ("uint16_t half", "float", 'float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half)); return x;'),
    "dg_store_f16": ("float x", "uint16_t", 'uint16_t half; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x)); return half;'),
    "dg_round_f16": (
        "float x", "float",
        'uint16_t half; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x)); '
        'asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half)); return x;',
    ),
    "dg_cast_f64_f16": (
        "double x", "float",
        'uint16_t half; float y; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(half) : "d"(x)); '
        'asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(half)); return y;',
    ),
}  # fmt: skip
_BITS = {
    "dg_bits_f32": ("float x", "uint32_t", "return (uint32_t)__float_as_int(x);"),
    "dg_from_f32": ("uint32_t bits", "float", "return __int_as_float((int)bits);"),
    "dg_bits_f64": ("double x", "uint64_t", "return (uint64_t)__double_as_longlong(x);"),
    "dg_from_f64": ("uint64_t bits", "double", "return __longlong_as_double((long long)bits);"),
}
_COMPLEX_BUILTIN = r"__builtin_(c(?:a?(?:sin|cos|tan)h?|log|sqrt|pow))f?\("
_C_TO_CUDA: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\bfloat _Complex\b", "dg_c64"),
        (r"\bdouble _Complex\b", "dg_c128"),
        (r"__real__ (\w+)", r"\1.re"),
        (r"__imag__ (\w+)", r"\1.im"),
        (_COMPLEX_BUILTIN, r"dg_\1("),  # of complex.h
        (r"__builtin_(nan|nanf)\(\"\"\)", r"dg_\1()"),
        (r"__builtin_(inff?|complex)\(", r"dg_\1("),
        (r"__builtin_(\w+)\(", r"\1("),
        (r"\b_Bool\b", "bool"),
        (r"\((dg_\w+)\)\{", r"\1{"),
        (r"\{\.bits = (\w+)\}", r"{\1}"),
    )
)


def prelude_for(functions: Set[str]) -> str:
    """CUDA C text that defines functions of the prelude, given as dg_<function>_<suffix>, and all that they call."""
    texts = definitions(functions, replacements()).values()
    headers = ["support.h", "complex.h"] if any(re.search(_COMPLEX_BUILTIN, text) for text in texts) else ["support.h"]
    return "\n".join([*map(_header, headers), *map(translated, texts)])


def translated(text: str) -> str:
    """C text of the prelude as CUDA C.

    >>> translated("DG_INL float _Complex f(float _Complex z) { return __builtin_complex(__real__ z, 0.0f); }")
    'DG_INL dg_c64 f(dg_c64 z) { return dg_complex(z.re, 0.0f); }'
    """
    for pattern, replacement in _C_TO_CUDA:
        text = pattern.sub(replacement, text)
    return text


@functools.cache
def replacements() -> Mapping[str, str]:
    """The functions of the prelude that CUDA has by itself."""
    found: dict[str, str] = {}
    for function in FUNCTIONS.values():
        if not function.cuda:
            continue
        for ctype, suffix, tail in (("float", "f32", "f"), ("double", "f64", "")):
            parameters = ", ".join(f"{ctype} {x}" for x in "xy"[: function.arity])
            operands = ", ".join("xy"[: function.arity])
            full = f"dg_{function.name}_{suffix}"
            found[full] = f"DG_INL {ctype} {full}({parameters}) {{ return {function.cuda}{tail}({operands}); }}\n"
    for name, (parameters, result, body) in (_BITS | _HALVES).items():
        text = f"DG_INL {result} {name}({parameters}) {{ {body} }}\n"
        if name in _HALVES:
            (plain,) = (t for n, t in definitions({name}).items() if n == name)
            text = f"#ifndef DG_EMULATED\n{text}#else\n{plain}#endif\n"
        found[name] = text
    return found


@functools.cache
def _header(name: str) -> str:
    return resources.files("dynagraph.backends.cuda").joinpath(name).read_text()
