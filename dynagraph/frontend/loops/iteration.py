"""Iterators of native loops: ranges, rows of arrays, tuples, and enumerate, zip and reversed of these."""

from __future__ import annotations

from dynagraph.frontend.loops import elements
from dynagraph.frontend.loops.builder import Builder
from dynagraph.frontend.loops.operations import meaning_of
from dynagraph.frontend.loops.operators import NotNative, describe, exact, index_of, number
from dynagraph.frontend.loops.types import (
    SMALL,
    SMALL_INT,
    Array,
    Composite,
    Enumerate,
    Items,
    ListItems,
    Range,
    RangeObject,
    Rows,
    TextItems,
    Tuple,
    Type,
    Value,
    Zip,
    int_value,
    integer,
    tuple_of,
)
from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call
from dynagraph.ir.regions import Branch, Jump

ITERATORS = (Range, Rows, ListItems, TextItems, Items, Enumerate, Zip)


def range_object(b: Builder, args: list[Value]) -> Value:
    """``range(...)``."""
    given = [index_of(b, a) for a in args]
    if not 1 <= len(given) <= 3:
        raise NotNative("range takes one to three numbers")
    start, stop, step = (integer(0), *given, integer(1)) if len(given) == 1 else (*given, integer(1))[:3]
    for value in (start, stop, step):
        low, high = value.bounds
        if low < -SMALL or high > SMALL:
            b.require(call("and", call("ge", value.only, number(-SMALL)), call("le", value.only, number(SMALL))))
    if step.number is None:
        b.require(call("ne", step.only, number(0)))
    elif step.number == 0:
        raise NotNative("range() by 0")
    return Value(RangeObject(step.number), (start.only, stop.only, step.only))


def _iter_of_range(b: Builder, value: Value) -> Value:
    assert isinstance(value.type, RangeObject)
    start, stop, step = value.parts
    known = value.type.step
    if known in (1, -1):
        left = exact("sub", stop, start) if known == 1 else exact("sub", start, stop)
    elif known is not None and known > 0:
        left = call("floordiv", exact("add", exact("sub", stop, start), number(known - 1)), number(known))
    elif known is not None:
        left = call("floordiv", exact("add", exact("sub", start, stop), number(-known - 1)), number(-known))
    else:
        upward = call("gt", step, number(0))
        up = call("floordiv", exact("sub", exact("add", exact("sub", stop, start), step), number(1)), step)
        down = call("floordiv", exact("sub", exact("sub", exact("sub", start, stop), step), number(1)), call("neg", step))
        left = Expr("select", (upward, up, down), dtypes.int64)
    left = b.temporary(left)
    left = b.temporary(Expr("select", (call("gt", left, number(0)), left, number(0)), dtypes.int64))
    return Value(Range(known), (start, left, step))


def reversed_of(b: Builder, value: Value) -> Value:
    if isinstance(value.type, RangeObject):
        start, left, step = _iter_of_range(b, value).parts
        last = b.temporary(exact("add", start, exact("mul", exact("sub", left, number(1)), step)))
        known = value.type.step
        kind = Range(None if known is None else -known)
        return Value(Composite(kind), (last, left, b.temporary(call("neg", step)) if known is None else number(-known)))
    raise NotNative(f"reversed of {describe(value.type)}")


def enumerate_of(b: Builder, value: Value, start: Value) -> Value:
    inner = iterate(b, value)
    first = index_of(b, start)
    if first.number is None:
        raise NotNative("enumerate from a number that is not known")
    return Value(Composite(Enumerate(inner.type)), (first.only, *inner.parts))


def zip_of(b: Builder, values: list[Value]) -> Value:
    inner = [iterate(b, v) for v in values]
    if not inner:
        raise NotNative("zip of nothing")
    return Value(Composite(Zip(tuple(v.type for v in inner))), tuple(p for v in inner for p in v.parts))


def iterate(b: Builder, value: Value) -> Value:
    """``iter(value)``."""
    kind = value.type
    if isinstance(kind, ITERATORS):
        return value
    if isinstance(kind, Composite):
        return Value(kind.made, value.parts)
    if isinstance(kind, RangeObject):
        return _iter_of_range(b, value)
    if isinstance(kind, Array) and kind.ndim > 0:
        return Value(Rows(kind), (*value.parts, number(0)))
    if isinstance(kind, Tuple):
        return Value(Items(kind), value.parts)
    found = meaning_of("iterate", kind)
    if found is not None:
        return found(b, value)  # type: ignore[no-any-return]
    raise NotNative(f"a loop over {describe(kind)}")


# -- stepping ----------------------------------------------------------------------------------------------------------


def step(b: Builder, end: int) -> None:
    """FOR_ITER: go on with the next value on the stack, or at `end` without the iterator."""
    iterator = b.pop()
    behind = b.top.ip
    test = _has_next(b, iterator)
    if test is None:
        b.end(Jump(b.edge(end)))
        return
    if isinstance(iterator.type, Items):
        value, after = _next(b, iterator)
        b.top.stack += [after, value]
        return
    test = b.temporary(test)
    done = b.edge(end, _leftover(b, iterator))
    block = b.block
    assert block is not None
    inside = b.new_block()
    block.end = Branch(test, inside, done)
    b.block = inside
    value, after = _next(b, iterator)
    assert b.block is inside
    b.top.stack += [after, value]
    b.end(Jump(b.edge(behind)))


def _leftover(b: Builder, iterator: Value) -> list[Value]:
    return []


def _has_next(b: Builder, iterator: Value) -> Expr | None:
    """Whether there is a next value; None: there is none."""
    kind = iterator.type
    if isinstance(kind, Range):
        return call("gt", iterator.parts[1], number(0))
    if isinstance(kind, Rows):
        array = _array_of(iterator)
        return call("lt", iterator.parts[-1], array.sizes[0])
    if isinstance(kind, Items):
        return None if kind.at >= len(kind.owner.items) else call("eq", number(0), number(0))
    if isinstance(kind, Enumerate):
        return _has_next(b, _inner(iterator))
    if isinstance(kind, Zip):
        found: Expr | None = None
        for part in _parts(iterator):
            if isinstance(part.type, (Items, Zip)):
                raise NotNative("zip of a tuple")
            one = _has_next(b, part)
            assert one is not None
            found = one if found is None else call("and", found, one)
        return found
    registered = meaning_of("has_next", kind)
    if registered is not None:
        return registered(b, iterator)  # type: ignore[no-any-return]
    raise NotNative(f"a loop over {describe(kind)}")


def _next(b: Builder, iterator: Value) -> tuple[Value, Value]:
    """The next value, and the iterator behind it."""
    kind = iterator.type
    found = meaning_of("next", kind)
    if found is not None:
        return found(b, iterator)  # type: ignore[no-any-return]
    if isinstance(kind, Range):
        upcoming, left, by = iterator.parts
        upcoming = b.temporary(upcoming, always=True)
        rest = (b.temporary(exact("add", upcoming, by)), b.temporary(exact("sub", left, number(1))), by)
        return Value(SMALL_INT, (upcoming,)), Value(kind, rest)
    if isinstance(kind, Rows):
        array, place = _array_of(iterator), b.temporary(iterator.parts[-1], always=True)
        element = elements.at_places(b, array, [int_value(place, 0, SMALL)])
        return element, Value(kind, (*array.parts, b.temporary(exact("add", place, number(1)))))
    if isinstance(kind, Items):
        items = Value(kind.owner, iterator.parts).items()
        return items[kind.at], Value(Items(kind.owner, kind.at + 1, kind.given), iterator.parts)
    if isinstance(kind, Enumerate):
        count = b.temporary(iterator.parts[0], always=True)
        value, inner = _next(b, _inner(iterator))
        following = b.temporary(exact("add", count, number(1)))
        return tuple_of([Value(SMALL_INT, (count,)), value]), Value(Enumerate(inner.type), (following, *inner.parts))
    assert isinstance(kind, Zip)
    rows, after_ = [], []
    for part in _parts(iterator):
        value, inner = _next(b, part)
        rows.append(value)
        after_.append(inner)
    return tuple_of(rows), Value(Zip(tuple(v.type for v in after_)), tuple(p for v in after_ for p in v.parts))


def _array_of(iterator: Value) -> Value:
    assert isinstance(iterator.type, Rows)
    return Value(iterator.type.array, iterator.parts[:-1])


def _inner(iterator: Value) -> Value:
    assert isinstance(iterator.type, Enumerate)
    return Value(iterator.type.inner, iterator.parts[1:])


def _parts(iterator: Value) -> list[Value]:
    assert isinstance(iterator.type, Zip)
    found, at = [], 0
    for kind in iterator.type.inner:
        n = len(kind.parts)
        found.append(Value(kind, iterator.parts[at : at + n]))
        at += n
    return found


def remaining(kind: Type) -> bool:
    """Whether a type is an iterator's."""
    return isinstance(kind, ITERATORS)
