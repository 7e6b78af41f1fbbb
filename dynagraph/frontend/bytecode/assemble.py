"""Assemble code objects: what frames run instead of their own, resume functions and continuations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import groupby
from types import CodeType
from typing import Any

from bytecode import CompilerFlags, ConcreteBytecode, ConcreteInstr
from bytecode.concrete import ExceptionTableEntry
from bytecode.instr import InstrLocation

from dynagraph.frontend.bytecode.decode import CACHES, Instruction, Region, Same
from dynagraph.frontend.bytecode.encode import (
    CELL_OPS,
    Item,
    Opcode,
    Tables,
    aim_jumps,
    check_loads,
    emit,
    lay_out,
    prepend_cells,
    stack_depth,
    straighten,
    stream_of,
)

try:
    from dynagraph._core._frame_hook import skip
except ImportError:  # a CPython version that the hook does not know
    skip = None  # type: ignore[assignment]

_CALLABLE = "the callable"


STANDS_IN = "stands in"  # the local variable of code that has its callable from the frame hook; no name that Python code can have


def call_instead(code: CodeType, callable: Callable[[tuple], Any] | None = None) -> CodeType:
    """Code with the parameters and free variables of `code` that does ``return callable((p0, p1, ...))``.

    The parameters come in the order of `co_varnames`. Names and the first line are those of `code`, so that
    tracebacks and profiles show the function that the user wrote. Without `callable` it is in the first local after the
    parameters, where the frame hook puts it: the garbage collector does not see what code objects hold.
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
        callable is None,
    )
    return template.replace(
        co_consts=tuple(callable if c == _CALLABLE else c for c in template.co_consts),
        co_varnames=code.co_varnames[:n_parameters] + (STANDS_IN,) * (callable is None),
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
def _template(n_args: int, n_posonly: int, n_kwonly: int, varargs: bool, varkeywords: bool, n_free: int, local: bool) -> CodeType:
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
    uses = "".join(f"; {name}" for name in free) + "; callable = 0" * local
    called = "callable" if local else f"({_CALLABLE!r} if True else 0)"
    source = f"def outer({', '.join(free)}):\n def shim({', '.join(signature)}): return {called}(({values})){uses}"
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


def assemble(
    instructions: Sequence[Instruction],
    regions: Iterable[Region],
    like: CodeType,
    *,
    parameters: Sequence[str] | None = None,
    name: str | None = None,
    cellvars: Sequence[str] | None = None,
    freevars: Sequence[str] | None = None,
    stacksize: int | None = None,
) -> CodeType:
    """Code of a normalised stream. What is not given is that of `like`; with `parameters`, these are all, and positional.

    Jumps may go in either direction. A parameter that is a cell variable and for which no MAKE_CELL comes before RESUME takes
    the cell itself. With `parameters`, a local variable that may have no value raises UnboundLocalError where it is loaded.
    ValueError for a stream that would corrupt the interpreter's stack, or that this version has no opcodes for.
    """
    cells = tuple(like.co_cellvars if cellvars is None else cellvars)
    free = tuple(like.co_freevars if freevars is None else freevars)
    arguments = like.co_varnames[: _n_parameters(like)] if parameters is None else tuple(parameters)
    stream = stream_of(instructions, regions)
    _check_cells(stream, arguments, cells, free)
    prepend_cells(stream, [p for p in arguments if p in cells])
    straighten(stream)
    if parameters is not None:
        check_loads(stream, arguments)
    # the first constant is the docstring
    tables = Tables(like.co_consts[:1], like.co_varnames if parameters is None else arguments, cells, free)
    tables.add_locals(stream)
    emitted = emit(stream, tables)
    aim_jumps(emitted)
    depth = max(stack_depth(emitted, like.co_flags), stacksize or 0, like.co_stacksize if parameters is None else 0)
    lay_out(emitted)
    result = ConcreteBytecode(_concrete(emitted), consts=tuple(tables.consts), names=tuple(tables.names), varnames=tables.varnames)
    result.exception_table = list(_entries(emitted))
    result.cellvars, result.freevars = list(cells), list(free)
    _describe(result, like, None if parameters is None else len(arguments), name or like.co_name)
    return result.to_code(stacksize=depth, compute_exception_stack_depths=False)


def _describe(result: ConcreteBytecode, like: CodeType, n_parameters: int | None, name: str) -> None:
    result.filename, result.first_lineno = like.co_filename, like.co_firstlineno
    result.name = name
    result.qualname = like.co_qualname.removesuffix(like.co_name) + name
    result.flags = CompilerFlags(like.co_flags)
    result.argcount, result.posonlyargcount, result.kwonlyargcount = (
        like.co_argcount,
        like.co_posonlyargcount,
        like.co_kwonlyargcount,
    )
    if n_parameters is not None:
        result.flags = CompilerFlags(like.co_flags & ~(CO_VARARGS | CO_VARKEYWORDS))
        result.argcount, result.posonlyargcount, result.kwonlyargcount = n_parameters, 0, 0


def _check_cells(stream: Sequence[Item], parameters: Collection[str], cellvars: Collection[str], freevars: Collection[str]) -> None:
    """The interpreter takes it on trust that there is a cell."""
    made = {*parameters}.intersection(cellvars) | {item.value for item in stream if item.op == "MAKE_CELL"}
    if any(item.op == "COPY_FREE_VARS" for item in stream):
        made |= {*freevars}
    missing = {item.value for item in stream if item.op in CELL_OPS} - made
    if missing:
        raise ValueError(f"nothing makes the cells of {sorted(missing)}")


def _concrete(emitted: Sequence[Opcode]) -> Iterator[ConcreteInstr]:
    for opcode in emitted:
        location = _location(opcode.item.positions)
        extended = opcode.n_extended or None
        if opcode.arg is None:
            yield ConcreteInstr(opcode.name, location=location)
        else:
            yield ConcreteInstr(opcode.name, opcode.arg, location=location, extended_args=extended)
        for _ in range(CACHES[opcode.number]):
            yield ConcreteInstr("CACHE", 0, location=location)


@lru_cache(maxsize=4096)
def _location(positions: tuple[int | None, ...]) -> InstrLocation:
    line, end_line, column, end_column = positions
    try:
        return InstrLocation(line, end_line if column is not None else line, column, end_column)
    except ValueError:  # columns that the line table cannot have
        return InstrLocation(line, None, None, None)


def _entries(emitted: Sequence[Opcode]) -> Iterator[ExceptionTableEntry]:
    for handler, held in groupby(emitted, lambda opcode: opcode.item.handler):
        if handler is not None:
            opcodes = list(held)
            target = handler.target.first.offset
            yield ExceptionTableEntry(opcodes[0].offset, opcodes[-1].end - 1, target, handler.depth, handler.push_lasti)


def called_from(code: CodeType, line: int) -> CodeType:
    """Code of ``lambda function, *args: function(*args)`` that stands, for tracebacks, warnings and logs, on a line of `code`."""
    return _called_from(Same(code), line)


@lru_cache(maxsize=512)
def _called_from(same: Same, line: int) -> CodeType:
    code = same.code
    shim = (lambda function, *args: function(*args)).__code__
    made = shim.replace(
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_filename=code.co_filename,
        co_firstlineno=line,
        co_linetable=_first_line_only(len(shim.co_code) // 2),
    )
    if skip is not None:
        skip(made)  # it stands for a frame of the user's that ran already
    return made
