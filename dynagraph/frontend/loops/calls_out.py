"""Calls out of native loops: Python does an instruction, and native code goes on with what that gives.

It is so with what has no effects but on the arrays and generators that it is given, runs no code of the user's, and whose result
has a type that can be told before: NumPy's functions, methods and operators, SciPy's of some modules, `math`, draws of random
numbers.  They are asked, with samples, and generators of our own.  A result of another type leaves the loop behind the
instruction, an exception at it.
"""

from __future__ import annotations

import functools
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.doors.numpy import lookup
from dynagraph.doors.numpy.table import method
from dynagraph.frontend.bytecode.assemble import assemble, skip
from dynagraph.frontend.bytecode.decode import Instruction
from dynagraph.frontend.bytecode.resume import stack_effect
from dynagraph.frontend.kinds.values import Const, Function, Method, Object
from dynagraph.frontend.loops import new_arrays
from dynagraph.frontend.loops.arrays import MAX_NDIM
from dynagraph.frontend.loops.builder import Builder, Frame, Way, variable
from dynagraph.frontend.loops.displays import Display
from dynagraph.frontend.loops.objects import Packed
from dynagraph.frontend.loops.operators import NotNative, type_of_sample
from dynagraph.frontend.loops.reasons import OTHER_TYPE, RAISES
from dynagraph.frontend.loops.types import (
    HELD,
    NOTHING,
    NULL,
    Array,
    Bool,
    Bound,
    Char,
    Complex,
    Float,
    Int,
    Known,
    List,
    PythonList,
    RangeObject,
    Scalar,
    Slice,
    Tuple,
    Type,
    Value,
    width_of,
)
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import from_numpy
from dynagraph.ir.expr import const
from dynagraph.ir.region_loops import natural_loops
from dynagraph.ir.regions import OWNED, POINTER, Block, CallOut, Hold, LoadSlot, Region, Slot, slots_of_variable

MOST_ARGUMENTS = 16
LONGEST_TUPLE = 16
LARGEST_SIZE = 8  # an int of the code's up to which it stands in samples as it is
FILLS = (2, 1, 0)  # what stands in samples for an int that is not known, one after the other
Row = tuple[Any, ...]


def call_out(b: Builder, i: Instruction, argument_of: Callable[[Any], int]) -> Row | None:
    """Let Python do an instruction that native code has refused; gives the row of the call, None where that cannot be.

    `argument_of`: the number of the argument that an executor's value is.
    """
    effect = stack_effect(i)
    if effect is None or i.op not in ASKED or effect[1] > 1:
        return None
    taken, put = effect
    new_arrays.settle_stacks(b)
    stack = b.top.stack
    operands = [v if isinstance(v.type, Display) else b.whole(v) for v in stack[len(stack) - taken :]]
    kind = ASKED[i.op](i, operands)
    if kind is None or len(operands) > MOST_ARGUMENTS:
        return None
    b.effect()
    given = [v for v in operands if v.type != NULL]
    packed = Packed(given, argument_of)
    function = _standing_in(b.top, i, [v.type != NULL for v in operands])
    b.top.stack = stack[: len(stack) - taken]
    name = b.fresh(POINTER)
    held = Value(HELD, (variable(name, POINTER),))
    out = CallOut(name, b.n_calls_out, packed.args, width_of(kind), _behind(b, held if put else None), _raising(b, held))
    b.n_calls_out += 1
    b.emit(out)
    if put:
        b.push(_result(b, name, kind))
    return ("call", function, packed.boxes, out.n_slots, result_row(kind))


def _behind(b: Builder, held: Value | None) -> Any:
    frames = [f.copy() for f in b.frames]
    top = frames[-1]
    while top.program.instructions[top.ip].op == "NOP":  # resume functions have some that the original code has not
        top.ip += 1
    if held is not None:
        top.stack.append(held)
    return b.exit_of(Way(frames, again=True, reason=OTHER_TYPE))


def _raising(b: Builder, held: Value) -> Any:
    frames = [f.copy() for f in b.frames]
    frames[-1].ip = b.before[-1].ip
    frames[-1].stack.append(held)
    return b.exit_of(Way(frames, raises=True, reason=RAISES))


def _result(b: Builder, name: str, kind: Type) -> Value:
    """The parts of a call's result as variables."""
    parts, at, width = [], 0, width_of(kind)
    for _, part in kind.parts:
        slot = Slot(variable(name, POINTER), const(0, dtypes.int64), width, at)
        made = b.fresh(part)
        if part == OWNED:
            pointer = b.fresh(POINTER)
            b.emit(LoadSlot(pointer, slot))
            b.emit(Hold(made, variable(pointer, POINTER)))
        else:
            b.emit(LoadSlot(made, slot))
        parts.append(variable(made, part))
        at += slots_of_variable(part)
    return Value(kind, tuple(parts))


def result_row(kind: Type, slot: int = 0) -> Row:
    """How the dispatcher's NativeLoop takes a result."""
    if isinstance(kind, Scalar):
        return ("scalar", slot, kind.dtype.numpy)
    if isinstance(kind, Array):
        return ("given", slot, kind.dtype.numpy, kind.ndim, kind.packed)
    if isinstance(kind, Tuple):
        rows = []
        for item in kind.items:
            rows.append(result_row(item, slot))
            slot += width_of(item)
        return ("tuple", tuple(rows))
    return ({Int: "int", Float: "float", Complex: "complex", Bool: "bool"}.get(type(kind), "none"), slot)


def _standing_in(frame: Frame, i: Instruction, shape: Sequence[bool]) -> types.FunctionType:
    """A function that takes what an instruction takes from the stack, and does it at the user's line."""
    names = [f"operand {k}" for k, there in enumerate(shape) if there]
    body, left = [Instruction("RESUME", 0, i.line, None)], iter(names)
    for there in shape:
        body.append(Instruction("LOAD_FAST", next(left), i.line, None) if there else Instruction("PUSH_NULL", None, i.line, None))
    body.append(i)
    if not stack_effect(i)[1]:  # type: ignore[index]
        body.append(Instruction("LOAD_CONST", None, i.line, None))
    body.append(Instruction("RETURN_VALUE", None, i.line, None))
    code = assemble(body, (), frame.program.code, parameters=names, cellvars=(), freevars=())
    if skip is not None:
        skip(code)
    made = types.FunctionType(code, frame.function.globals, code.co_name)
    made.__qualname__ = frame.function.name
    return made


# -- whether it is worth it ---------------------------------------------------------------------------------------------------

SAVED, LOST = 8, 110  # nanoseconds: of an instruction that Python need not do, and of a call compared with Python's own
INNER_TURNS = 10  # a guess
DEEPEST = 3


def calls_worthwhile(region: Region) -> bool:
    """Whether what the loops of a region save is more than what its calls lose."""
    depths: Counter[Block] = Counter(b for loop in natural_loops(region) for b in loop.blocks)
    total = 0
    for block, depth in depths.items():
        n_calls = sum(isinstance(i, CallOut) for i in block.body)
        total += INNER_TURNS ** min(depth, DEEPEST) * (SAVED * (len(block.body) - n_calls) - LOST * n_calls)
    return total >= 0


# -- what is asked ---------------------------------------------------------------------------------------------------------


def _asked_call(i: Instruction, operands: list[Value]) -> Type | None:
    names = () if i.op == "CALL" else i.value[1]
    first, second, *args = operands
    if second.type == NULL or first.type == NULL:
        function = second if first.type == NULL else first
    else:  # a method of the second
        return None
    if isinstance(function.type, Bound) and isinstance(function.type.owner, PythonList):
        return NOTHING if function.type.name == "append" and len(args) == 1 else None
    asked = _asked_function(function, args)
    if asked is None:
        return None
    at = len(args) - len(names)

    def ask(samples: list[Any]) -> Any:
        positional, named = samples[:at], dict(zip(names, samples[at:]))
        if isinstance(function.type, Bound):
            return getattr(samples[-1], function.type.name)(*positional, **named)
        return asked(*positional, **named)

    owner = [Value(function.type.owner, function.parts)] if isinstance(function.type, Bound) else []
    return _type_of(ask, [*args, *owner])


def _asked_function(function: Value, args: list[Value]) -> Callable[..., Any] | None:
    """What is asked in the place of a function: one that only computes, or a generator of ours."""
    kind = function.type
    if isinstance(kind, Bound):
        return _method(kind)
    if not isinstance(kind, Known):
        return None
    held = _held(kind.value)
    own = _own_generator(kind.value, held)
    if own is not None:
        return None if any(isinstance(a.type, List) for a in args) else own
    return held if _only_computes(held) else None


NUMBERS = (Int, Float, Complex, Bool, Scalar)
WRITE_THEMSELVES = ("sort", "partition", "fill", "put", "itemset")


NOT_CALLED = ("resize", "setflags", "setfield", "tofile", "dump", "dumps")  # methods that change more than elements


def _method(kind: Bound) -> Callable[..., Any] | None:
    if kind.name in NOT_CALLED:
        return None
    if isinstance(kind.owner, Array):
        return None if method(kind.name) is None and kind.name not in WRITE_THEMSELVES else len
    return len if isinstance(kind.owner, NUMBERS) else None


def _held(value: Any) -> Any:
    """The Python callable that an executor's value is."""
    if isinstance(value, Function):
        return value.object
    if isinstance(value, Method):
        return value.function if isinstance(value.function, str) else _held(value.function)
    return value.value if isinstance(value, Const) else None


@functools.cache
def _generators() -> dict[type, Any]:
    """One of our own of each class whose methods draw random numbers."""
    found: dict[type, Any] = {}
    if "random" in sys.modules:
        python = sys.modules["random"]
        found[python.Random] = python.Random(0)
    found[np.random.Generator] = np.random.Generator(np.random.PCG64(0))
    found[np.random.RandomState] = np.random.RandomState(0)
    return found


def _own_generator(value: Any, held: Any) -> Callable[..., Any] | None:
    """A method of a generator, of one of our own."""
    owner: Any = None
    if isinstance(value, Method) and isinstance(value.owner, Object):
        owner = value.owner.kind
    elif getattr(held, "__self__", None) is not None and not isinstance(held.__self__, types.ModuleType):
        owner = type(held.__self__)
    if getattr(owner, "__module__", "").partition(".")[0] not in ("random", "numpy"):
        return None
    own = _generators().get(owner)
    return None if own is None else getattr(own, held if isinstance(held, str) else held.__name__, None)


PURE_BUILTINS = (abs, bool, complex, divmod, float, int, pow, round, sum)
PURE_MODULES = (
    "math", "cmath", "numpy.linalg", "numpy.fft", "scipy.special", "scipy.linalg", "scipy.fft", "scipy.ndimage", "scipy.signal",
)  # fmt: skip


SETTERS = ("set", "register", "skip", "errstate")  # of modules' state, as scipy.special.seterr
WRITERS = (np.copyto, np.fill_diagonal, np.put, np.place, np.putmask, np.put_along_axis)
STORES = ("STORE_SUBSCR", "STORE_SLICE")


def _only_computes(function: Any) -> bool:
    if function is None:
        return False
    name = getattr(function, "__name__", "")
    if name in NOT_CALLED or name.startswith(SETTERS):
        return False
    if any(function is one for one in (*PURE_BUILTINS, *WRITERS)):
        return True
    if isinstance(function, np.ufunc) and getattr(np, name, None) is function:
        return True
    if lookup(function) is not None:
        return True
    return any(getattr(sys.modules.get(module), name, None) is function for module in PURE_MODULES if name)


def _asked_operator(i: Instruction, operands: list[Value]) -> Type | None:
    if not any(isinstance(v.type, (Array, *NUMBERS)) for v in operands):
        return None
    if i.op in STORES:
        return NOTHING if all(map(_is_plain, operands)) else None
    function = types.FunctionType(_standing_code(i), {})
    return _type_of(lambda samples: function(*samples), operands)


def _is_plain(value: Value) -> bool:
    try:
        _sample(value, 1)
    except _NoSample:
        return False
    return True


@functools.lru_cache(256)
def _code_of(op: str, value: Any) -> types.CodeType:
    taken, put = stack_effect(Instruction(op, value, 1, None))  # type: ignore[misc]
    names = [f"operand {k}" for k in range(taken)]
    body = [Instruction("RESUME", 0, 1, None), *(Instruction("LOAD_FAST", n, 1, None) for n in names)]
    body.append(Instruction(op, value, 1, None))
    body += [Instruction("LOAD_CONST", None, 1, None)] * (not put)
    body.append(Instruction("RETURN_VALUE", None, 1, None))
    return assemble(body, (), _like.__code__, parameters=names)


def _like() -> None:
    pass


def _standing_code(i: Instruction) -> types.CodeType:
    return _code_of(i.op, i.value)


def _asked_attribute(i: Instruction, operands: list[Value]) -> Type | None:
    if not isinstance(operands[0].type, (Array, Scalar)):
        return None
    return _type_of(lambda samples: getattr(samples[0], i.value), operands)


ASKED: dict[str, Callable[[Instruction, list[Value]], Type | None]] = {
    "CALL": _asked_call,
    "CALL_KW": _asked_call,
    "LOAD_ATTR": _asked_attribute,
    **dict.fromkeys(
        (
            "BINARY_OP", "COMPARE_OP", "BINARY_SUBSCR", "BINARY_SLICE", "STORE_SUBSCR", "STORE_SLICE", "UNARY_NEGATIVE",
            "UNARY_POSITIVE", "UNARY_INVERT",
        ),
        _asked_operator,
    ),
}  # fmt: skip


# -- asking ----------------------------------------------------------------------------------------------------------------


class _NoSample(Exception):
    pass


def _type_of(ask: Callable[[list[Any]], Any], operands: list[Value]) -> Type | None:
    """The type of what is given for values of the operands' types; None: nothing is known of it."""
    for fill in FILLS:
        try:
            samples = [_sample(v, fill) for v in operands]
        except _NoSample:
            return None
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                given = ask(samples)
            except Exception:  # of whatever kind: it is only tried
                continue
        return _type(given)
    return None


def _type(given: Any) -> Type | None:
    if given is None:
        return NOTHING
    if type(given) is tuple and len(given) <= LONGEST_TUPLE:
        kinds = [_type(item) for item in given]
        return Tuple(tuple(k for k in kinds if k is not None)) if None not in kinds else None
    if type(given) is np.ndarray:
        dtype = from_numpy(given.dtype)
        if dtype is None or dtype is dtypes.bfloat16 or given.ndim > MAX_NDIM:
            return None
        packed = given.ndim > 0 and (given.strides[-1] == given.itemsize or given.shape[-1] <= 1)
        return Array(dtype, given.ndim, packed, made=True)
    try:
        found = type_of_sample(given)
    except NotNative:
        return None
    return None if isinstance(found, Scalar) and found.dtype is dtypes.bfloat16 else found


def _sample(value: Value, fill: int) -> Any:
    kind = value.type
    if isinstance(kind, Int):
        n = value.number
        return n if n is not None and abs(n) <= LARGEST_SIZE else fill
    if isinstance(kind, Scalar):
        return kind.dtype.numpy.type(fill if kind.dtype.is_integer else 1)
    if isinstance(kind, Array):
        return _sample_array(kind)
    if isinstance(kind, (Tuple, Slice, Display)):
        items = [_sample(item, fill) for item in value.items()]
        return slice(*items) if isinstance(kind, Slice) else items if isinstance(kind, Display) else tuple(items)
    if isinstance(kind, List) and kind.item is not None and isinstance(kind.item, NUMBERS):
        return [_sample(Value(kind.item, tuple(const(0, p) for _, p in kind.item.parts)), fill)] * 2  # type: ignore[arg-type]
    if isinstance(kind, Known):
        return _sample_known(kind)
    if isinstance(kind, RangeObject):
        return range(2)
    if kind == NOTHING:
        return None
    if type(kind) not in (Float, Complex, Bool, Char):
        raise _NoSample
    known = value.only.value if value.only.op == "const" else None
    plain = {Float: 0.5, Complex: 0.5j, Bool: True, Char: "a"}[type(kind)]
    return known if type(known) is type(plain) else plain


def _sample_array(kind: Array) -> Any:
    """Zeros and ones: an index, and of two axes a matrix that has an inverse."""
    made = np.zeros((2,) * kind.ndim, kind.dtype.numpy)
    if kind.ndim:
        made[(1,) * kind.ndim] = 1
    if kind.ndim == 2:
        made[0, 0] = 1
    if kind.ndim and not kind.packed:
        made = np.repeat(made, 2, axis=-1)[..., ::2]
    return made


def _sample_known(kind: Known) -> Any:
    held = kind.value.value if isinstance(kind.value, Const) else None
    if isinstance(held, (str, np.dtype)) or held is Ellipsis:
        return held
    if isinstance(held, type) and (issubclass(held, np.generic) or held in (int, float, bool, complex)):
        return held
    raise _NoSample


__all__ = ["call_out", "calls_worthwhile", "result_row"]
