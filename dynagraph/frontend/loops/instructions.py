"""What each instruction does with native values."""

from __future__ import annotations

from dynagraph.frontend.bytecode.decode import VERSION, Instruction
from dynagraph.frontend.executor.wrapping import load_cell, load_global
from dynagraph.frontend.kinds.slots import same
from dynagraph.frontend.kinds.values import DELETED, Function, Method, Object
from dynagraph.frontend.kinds.values import NULL as EMPTY
from dynagraph.frontend.loops import array_functions, arrays, calls, elements, fields, iteration, left, new_arrays, words  # noqa: F401
from dynagraph.frontend.loops.builder import Builder, handler
from dynagraph.frontend.loops.displays import Display, listed
from dynagraph.frontend.loops.operations import meaning_of
from dynagraph.frontend.loops.operators import NotNative, binary, compare, describe, refuse_iterators, truth, truth_value, unary
from dynagraph.frontend.loops.types import (
    BOOL,
    COMPLEX,
    FLOAT,
    NOTHING,
    NULL,
    Array,
    Bound,
    Char,
    Known,
    List,
    PythonList,
    Slice,
    Tuple,
    Value,
    integer,
    is_cell,
    is_number,
    tuple_of,
)
from dynagraph.ir import dtypes
from dynagraph.ir.expr import call, const
from dynagraph.ir.regions import Jump

CALLABLE_FIRST = VERSION >= (3, 13)  # [f, NULL] on the stack rather than [NULL, f]


# -- names and constants -----------------------------------------------------------------------------------------------


def constant(b: Builder, value: object) -> Value:
    """A literal of the code."""
    if value is None:
        return Value(NOTHING)
    if type(value) is bool:
        return truth_value(value)
    if type(value) is int and -(2**63) <= value < 2**63:
        return integer(value)
    if type(value) is int and 0 <= value < 2**64:
        return words.unsigned(value)
    if type(value) is float:
        return Value(FLOAT, (const(value, dtypes.float64),))
    if type(value) is complex:
        return Value(COMPLEX, (const(value, dtypes.complex128),))
    if type(value) is tuple:
        return tuple_of([constant(b, item) for item in value])
    return Value(Known(b.ex.constant(value)))


@handler("LOAD_CONST")
def load_const(b: Builder, i: Instruction) -> None:
    b.push(constant(b, i.value))


@handler("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(b: Builder, i: Instruction) -> None:
    value = b.top.locals.get(i.value)
    if value is None:
        raise NotNative(f"{i.value} is not set")
    if isinstance(value.type, left.Left):
        left.settle(b, i.value)
    else:
        b.push(value)


@handler("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(b: Builder, i: Instruction) -> None:
    value = b.top.locals.pop(i.value, Value(NULL))
    if isinstance(value.type, left.Left):
        left.settle(b, i.value)
    else:
        b.push(value)


@handler("STORE_FAST")
def store_fast(b: Builder, i: Instruction) -> None:
    value = new_arrays.settled(b, b.pop())
    if i.value in b.top.names.code.co_cellvars:
        raise NotNative(f"{i.value} is shared with an inner function")
    refuse_iterators([value])
    if value.type == NULL:
        b.top.locals.pop(i.value, None)
    else:
        b.top.locals[i.value] = value


@handler("DELETE_FAST")
def delete_fast(b: Builder, i: Instruction) -> None:
    value = b.top.locals.pop(i.value, None)
    if value is None:
        raise NotNative(f"{i.value} is not set")
    if isinstance(value.type, left.Left):
        left.settle(b, i.value)


@handler("LOAD_GLOBAL")
def load_global_(b: Builder, i: Instruction) -> None:
    b.push(b.native(load_global(b.ex, b.top.function.globals, i.value)))


@handler("LOAD_DEREF")
def load_deref(b: Builder, i: Instruction) -> None:
    held = b.top.locals.get(i.value)
    if held is not None and held.type != NULL and not is_cell(held):
        b.push(held)
        return
    cell = b.top.names.cells.get(i.value)
    if cell is None or (cell.source is None and cell.value in (EMPTY, DELETED)):
        raise NotNative(f"{i.value} is shared with an inner function, and not set")
    # what sets cells is not native: they keep their values
    b.push(b.outside(cell.value) if cell.source is None else b.native(load_cell(b.ex, cell, i.value)))


@handler("COPY_FREE_VARS", "RESUME", "NOP", "CACHE", "NOT_TAKEN")
def nothing(b: Builder, i: Instruction) -> None:
    pass


@handler("PUSH_NULL")
def push_null(b: Builder, i: Instruction) -> None:
    b.push(Value(NULL))


@handler("POP_TOP")
def pop_top(b: Builder, i: Instruction) -> None:
    b.pop()


@handler("SWAP")
def swap(b: Builder, i: Instruction) -> None:
    stack = b.top.stack
    stack[-1], stack[-i.value] = stack[-i.value], stack[-1]


@handler("COPY")
def copy(b: Builder, i: Instruction) -> None:
    value = b.top.stack[-i.value]
    if isinstance(value.type, arrays.Pending):  # x = y = z + 1
        value = b.top.stack[-i.value] = new_arrays.settled(b, value)
    if isinstance(value.type, Display):
        value = b.top.stack[-i.value] = listed(b, value)
    b.push(value)


# -- operators ---------------------------------------------------------------------------------------------------------


@handler("BINARY_OP")
def binary_op(b: Builder, i: Instruction) -> None:
    symbol = i.value if isinstance(i.value, str) else str(i.value)
    left, right = (listed(b, v) if isinstance(v.type, Display) else v for v in b.popn(2, whole=False))
    plain = symbol.removesuffix("=")
    if words.is_masked_soon(b.top.program, b.top.ip):
        made = words.wrapped(b, plain, left, right)
        if made is not None:
            b.push(made)
            return
    if plain != symbol and isinstance(left.type, Array):
        b.push(arrays.in_place(b, plain, left, right))
    elif plain == "@":
        b.push(new_arrays.product(b, left, right))
    elif arrays.is_array(left.type) or arrays.is_array(right.type):
        b.push(arrays.binary(b, plain, left, right))
    elif plain != symbol and isinstance(left.type, List):
        b.push(meaning_of("in_place", left.type)(b, plain, left, right))  # type: ignore[misc]
    else:
        b.push(binary(b, plain, left, right))


@handler("COMPARE_OP")
def compare_op(b: Builder, i: Instruction) -> None:
    left, right = b.popn(2)
    of_arrays = arrays.is_array(left.type) or arrays.is_array(right.type)
    b.push(arrays.binary(b, i.value, left, right) if of_arrays else compare(b, i.value, left, right))


@handler("UNARY_NEGATIVE")
def negative(b: Builder, i: Instruction) -> None:
    value = b.pop()
    b.push(arrays.unary(b, "neg", value) if arrays.is_array(value.type) else unary(b, "neg", value))


@handler("UNARY_POSITIVE")
def positive(b: Builder, i: Instruction) -> None:
    b.push(unary(b, "pos", b.pop()))


@handler("UNARY_INVERT")
def invert(b: Builder, i: Instruction) -> None:
    b.push(unary(b, "invert", b.pop()))


@handler("UNARY_NOT")
def not_(b: Builder, i: Instruction) -> None:
    b.push(Value(BOOL, (call("not", truth(b, b.pop())),)))


@handler("TO_BOOL")
def to_bool(b: Builder, i: Instruction) -> None:
    b.push(Value(BOOL, (truth(b, b.pop()),)))


@handler("IS_OP")
def is_op(b: Builder, i: Instruction) -> None:
    left, right = b.popn(2)
    kinds = (left.type, right.type)
    objects = [k.value for k in kinds if isinstance(k, Known) and isinstance(k.value, Object)]
    if len(objects) == 2:
        b.push(truth_value(same(b.top.names, *objects) is not bool(i.value)))
        return
    if NOTHING not in kinds:
        raise NotNative(f"`is` of {describe(left.type)} and {describe(right.type)}")
    b.push(truth_value((kinds[0] == kinds[1]) is not bool(i.value)))


@handler("CONTAINS_OP")
def contains_op(b: Builder, i: Instruction) -> None:
    item, owner = b.popn(2)
    registered = meaning_of("contains", owner.type)
    if registered is not None:
        test = registered(b, owner, item)
        b.push(Value(BOOL, (call("not", test) if i.value else test,)))
        return
    if not isinstance(owner.type, Tuple) or not (is_number(item.type) or isinstance(item.type, Char)):
        raise NotNative(f"`in` {describe(owner.type)}")
    found = const(False, dtypes.bool_)
    for other in owner.items():
        found = call("or", found, truth(b, compare(b, "==", item, other)))
    b.push(Value(BOOL, (call("not", found) if i.value else found,)))


# -- jumps -------------------------------------------------------------------------------------------------------------


@handler("JUMP")
def jump(b: Builder, i: Instruction) -> None:
    b.end(Jump(b.edge(i.value)))


def jump_if(b: Builder, i: Instruction, outcome: bool) -> None:
    test, behind = truth(b, b.pop()), b.top.ip
    if outcome:
        b.branch(test, lambda: b.edge(i.value), lambda: b.edge(behind))
    else:
        b.branch(test, lambda: b.edge(behind), lambda: b.edge(i.value))


@handler("POP_JUMP_IF_TRUE")
def pop_jump_if_true(b: Builder, i: Instruction) -> None:
    jump_if(b, i, True)


@handler("POP_JUMP_IF_FALSE")
def pop_jump_if_false(b: Builder, i: Instruction) -> None:
    jump_if(b, i, False)


@handler("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE")
def pop_jump_if_none(b: Builder, i: Instruction) -> None:
    is_none = b.pop().type == NOTHING
    if is_none is (i.op == "POP_JUMP_IF_NONE"):
        jump(b, i)


@handler("RETURN_VALUE")
def return_value(b: Builder, i: Instruction) -> None:
    value = new_arrays.settled(b, b.pop())
    if b.top.consumer is not None:
        value = b.top.consumer.end(b, b.frames[-2].stack[b.top.base :])
    if len(b.frames) > 1:
        b.return_from_call(value)
    else:
        b.leave_with(value)


@handler("GET_ITER")
def get_iter(b: Builder, i: Instruction) -> None:
    b.push(iteration.iterate(b, new_arrays.settled(b, b.pop())))


@handler("FOR_ITER")
def for_iter(b: Builder, i: Instruction) -> None:
    iteration.step(b, i.value)


@handler("END_FOR")
def end_for(b: Builder, i: Instruction) -> None:
    b.popn(2)


# -- containers and subscripts -----------------------------------------------------------------------------------------


@handler("BUILD_TUPLE")
def build_tuple(b: Builder, i: Instruction) -> None:
    items = [new_arrays.settled(b, v) for v in b.popn(i.value)]
    b.push(tuple_of(items))


@handler("BUILD_SLICE")
def build_slice(b: Builder, i: Instruction) -> None:
    b.push(tuple_of(b.popn(i.value), Slice))


@handler("UNPACK_SEQUENCE")
def unpack_sequence(b: Builder, i: Instruction) -> None:
    value = new_arrays.settled(b, b.pop())
    for item in reversed(elements.unpacked(b, value, i.value)):
        b.push(item)


@handler("BINARY_SUBSCR")
def binary_subscr(b: Builder, i: Instruction) -> None:
    owner, key = b.popn(2)
    b.push(elements.item(b, new_arrays.settled(b, owner), key))


@handler("BINARY_SLICE")
def binary_slice(b: Builder, i: Instruction) -> None:
    owner, start, stop = b.popn(3)
    b.push(elements.item(b, owner, tuple_of([start, stop], Slice)))


@handler("STORE_SUBSCR")
def store_subscr(b: Builder, i: Instruction) -> None:
    value, owner, key = b.popn(3)
    elements.set_item(b, owner, key, value)


@handler("STORE_SLICE")
def store_slice(b: Builder, i: Instruction) -> None:
    value, owner, start, stop = b.popn(4)
    elements.set_item(b, owner, tuple_of([start, stop], Slice), value)


@handler("DELETE_SUBSCR")
def delete_subscr(b: Builder, i: Instruction) -> None:
    owner, key = b.popn(2)
    found = meaning_of("delete_item", owner.type)
    if found is None:
        raise NotNative(f"an item of {describe(owner.type)} is deleted")
    found(b, owner, key)


# -- attributes and calls ----------------------------------------------------------------------------------------------


def attribute(b: Builder, owner: Value, name: str) -> Value:
    if isinstance(owner.type, PythonList):
        return Value(Bound(name, owner.type))
    if isinstance(owner.type, Known):
        return fields.attribute(b, owner.type.value, name)
    owner = new_arrays.settled(b, owner)
    found = elements.attribute(b, owner, name)
    return Value(Bound(name, owner.type), owner.parts) if found is None else found


@handler("LOAD_ATTR")
def load_attr(b: Builder, i: Instruction) -> None:
    getter = fields.getter_of(b, b.top.stack[-1], i.value)
    if getter is not None:
        b.inline_whole(getter, {getter.code.co_varnames[0]: b.top.stack[-1]})
        return
    b.push(attribute(b, b.pop(), i.value))


@handler("LOAD_METHOD")
def load_method(b: Builder, i: Instruction) -> None:
    found = attribute(b, b.pop(), i.value)
    b.top.stack += [found, Value(NULL)] if CALLABLE_FIRST else [Value(NULL), found]


@handler("CALL", "CALL_KW")
def call_(b: Builder, i: Instruction) -> None:
    n, names = (i.value, ()) if i.op == "CALL" else i.value
    stack = b.top.stack
    if any(isinstance(v.type, Known) and isinstance(v.type.value, (Function, Method)) for v in stack[-n - 2 : len(stack) - n]):
        new_arrays.settle_stacks(b)  # the function may write to what an expression reads
        stack = b.top.stack
    stack[len(stack) - n :] = [v if isinstance(v.type, Display) else b.whole(v) for v in stack[len(stack) - n :]]
    call_with(b, stack[-n - 2], stack[-n - 1], stack[len(stack) - n :], names, n + 2)


def call_with(b: Builder, first: Value, second: Value, args: list[Value], names: tuple[str, ...], taken: int) -> None:
    """Call what lies below the arguments, with or without an owner; `names`: of the last of the arguments."""
    if CALLABLE_FIRST:
        function, own = first, second
    else:
        function, own = (second, first) if first.type == NULL else (first, second)
    given = args if own.type == NULL else [own, *args]
    at = len(given) - len(names)
    calls.call(b, function, given[:at], dict(zip(names, given[at:])), taken)
