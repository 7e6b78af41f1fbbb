"""Makes the code objects that frames run instead of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any

_CALLABLE = "the callable"


def call_instead(code: CodeType, callable: Callable[[tuple], Any]) -> CodeType:
    """Code with the parameters and free variables of `code` that does ``return callable((p0, p1, ...))``.

    The parameters come in the order of `co_varnames`. Names and the first line are those of `code`, so that
    tracebacks and profiles show the function that the user wrote.
    """
    n_parameters = _n_parameters(code)
    flags = code.co_flags
    template = _template(
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        bool(flags & CO_VARARGS),
        bool(flags & CO_VARKEYWORDS),
        len(code.co_freevars),
    )
    return template.replace(
        co_consts=tuple(callable if c == _CALLABLE else c for c in template.co_consts),
        co_varnames=code.co_varnames[:n_parameters],
        co_freevars=code.co_freevars,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )


def _n_parameters(code: CodeType) -> int:
    varying = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount + varying


@cache
def _template(n_args: int, n_posonly: int, n_kwonly: int, varargs: bool, varkeywords: bool, n_free: int) -> CodeType:
    """The code for all functions with such a signature, by CPython's compiler: it knows what a version needs."""
    args = [f"p{k}" for k in range(n_args)]
    kwonly = [f"k{k}" for k in range(n_kwonly)]
    free = [f"f{k}" for k in range(n_free)]
    signature = args[:n_posonly] + ["/"] * bool(n_posonly) + args[n_posonly:]
    if varargs:
        signature.append("*a")
    elif kwonly:
        signature.append("*")
    signature += kwonly + ["**kw"] * varkeywords
    values = "".join(f"{name}, " for name in args + kwonly + ["a"] * varargs + ["kw"] * varkeywords)
    # Unreachable uses make the free variables, whose cells a debugger may read.
    # "if True": no warning that a str is called.
    uses = "".join(f"; {name}" for name in free)
    source = (
        f"def outer({', '.join(free)}):\n def shim({', '.join(signature)}): return ({_CALLABLE!r} if True else 0)(({values})){uses}"
    )
    outer = next(c for c in compile(source, "<dynagraph>", "exec").co_consts if isinstance(c, CodeType))
    shim = next(c for c in outer.co_consts if isinstance(c, CodeType))
    return shim.replace(co_linetable=_first_line_only(len(shim.co_code) // 2))


def _first_line_only(n_units: int) -> bytes:
    """A line table that puts all instructions on the first line, without columns (CPython: Objects/locations.md)."""
    table = bytearray()
    while n_units:
        here = min(n_units, 8)
        table += bytes((0x80 | 13 << 3 | (here - 1), 0))
        n_units -= here
    return bytes(table)
