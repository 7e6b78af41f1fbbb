"""What the callables of functools and operator mean: partials, wrappers, dispatchers, getters, operators as functions.

The getters of the caller's cannot change, so their identity is guarded; of a partial the parts are guarded as they are read.
"""

from __future__ import annotations

import functools
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.frontend import array_writes
from dynagraph.frontend.attributes import attribute_or, load_attribute, store_attribute
from dynagraph.frontend.builtins_table import SPECIAL, meaning
from dynagraph.frontend.calls import SPECIAL_CODES, SPECIAL_FUNCTIONS, Arguments, Keywords, call, caller
from dynagraph.frontend.exceptions import refuse, throw
from dynagraph.frontend.executor import Frame
from dynagraph.frontend.iterators import Items, items_of, iterate
from dynagraph.frontend.objects import OBJECT_CALLERS, known
from dynagraph.frontend.operations import binary, entries_of, in_place, plain, same_or_equal, subscript, unary
from dynagraph.frontend.source import Attribute, Key
from dynagraph.frontend.truth import length
from dynagraph.frontend.values import NULL, Array, Const, Dict, Function, Getter, Number, Object, Partial, Sequence, Value
from dynagraph.frontend.wrapping import load_cell

# -- partial ----------------------------------------------------------------------------------------------------------------------


def partial_parts(frame: Frame, value: Object) -> Partial:
    """A partial of the caller's, its parts guarded."""
    obj, source = value.value, value.source
    assert source is not None
    frame.ex.guards.add("type", source, functools.partial, says=" is a partial")
    args = frame.ex.wrap(obj.args, Attribute(source, "args"))
    keywords = frame.ex.wrap(obj.keywords, Attribute(source, "keywords"))
    if not isinstance(keywords, Dict):
        refuse("UNSUPPORTED_VALUE", "a partial with keywords of a kind of their own")
    function = frame.ex.wrap(obj.func, Attribute(source, "func"))
    return Partial(function, tuple(items_of(frame, args)), dict(entries_of(frame, keywords)))


def _call_partial(frame: Frame, value: Object, args: Arguments, kwargs: Keywords) -> Value:
    return call(frame, partial_parts(frame, value), args, kwargs)


@meaning(functools.partial)
def _partial(frame: Frame, function: Any, *args: Any, **kwargs: Any) -> Value:
    function = frame.ex.resolve(function)
    if isinstance(function, Partial) and not function.fields:
        return Partial(function.function, (*function.args, *args), {**function.kwargs, **kwargs})
    return Partial(function, args, kwargs)


# -- wraps ------------------------------------------------------------------------------------------------------------------------

ASSIGNED, UPDATED = functools.WRAPPER_ASSIGNMENTS, functools.WRAPPER_UPDATES


def _update_wrapper(
    frame: Frame, wrapper: Any, wrapped: Any, assigned: Any = Const(ASSIGNED), updated: Any = Const(UPDATED)
) -> Value:
    """``functools.update_wrapper`` of a function made by the captured code."""
    wrapper, wrapped = frame.ex.resolve(wrapper), frame.ex.resolve(wrapped)
    if not isinstance(wrapper, Function) or wrapper.source is not None or not isinstance(wrapped, Function):
        refuse("UNSUPPORTED_ARGUMENT", "update_wrapper() of this kind of object")
    if tuple(plain(frame, updated)) not in (UPDATED, ()):
        refuse("UNSUPPORTED_ARGUMENT", "update_wrapper() that updates other dicts")
    for name in plain(frame, assigned):
        value = attribute_or(frame, wrapped, name, None)
        if value is not None and not (name == "__type_params__" and not value.items):
            store_attribute(frame, wrapper, name, value)
    for name, value in _own_attributes(frame, wrapped).items() if plain(frame, updated) else ():
        wrapper.fields[name] = value
    wrapper.fields["__wrapped__"] = wrapped
    return wrapper


def _own_attributes(frame: Frame, function: Function) -> dict[str, Any]:
    """What stands in a function's ``__dict__``, guarded."""
    found: dict[str, Any] = {}
    if function.source is not None and vars(function.object):
        source = Attribute(function.source, "__dict__")
        entries = frame.ex.wrap(vars(function.object), source)
        assert isinstance(entries, Dict)
        found.update(entries_of(frame, entries))
    elif function.source is not None:
        frame.ex.guards.add("len", Attribute(function.source, "__dict__"), 0, says=" is empty")
    return {**found, **{k: v for k, v in function.fields.items() if not hasattr(types.FunctionType, k)}}


SPECIAL_FUNCTIONS[functools.update_wrapper] = _update_wrapper


# -- singledispatch ---------------------------------------------------------------------------------------------------------------


def _dispatch(frame: Frame, function: Function, cls: Any) -> Value:
    """The implementation for a class: what the registry holds for it, or for the nearest base."""
    kind = plain(frame, cls)
    cells = dict(zip(function.code.co_freevars, function.closure))
    registry = load_cell(frame.ex, cells["registry"])
    cache = cells["dispatch_cache"].real
    if cache is None or type(cache.cell_contents) is not weakref.WeakKeyDictionary:
        return refuse("UNSUPPORTED_FUNCTION", "functools.singledispatch with a cache of another kind")
    if not isinstance(registry, Dict) or registry.object is None or registry.source is None or not isinstance(kind, type):
        return refuse("UNSUPPORTED_FUNCTION", "functools.singledispatch")
    entries: dict[Any, Any] = registry.object
    frame.ex.guards.unmodified(kind)
    chosen = kind
    if kind not in entries:
        frame.ex.guards.add("len", registry.source, len(entries), says=f" has {len(entries)} implementations")
        if any(type(k) is not type for k in entries):
            return refuse("UNSUPPORTED_FUNCTION", "functools.singledispatch on abstract classes")
        frame.ex.guards.add("no_item", registry.source, kind, says=f" has none for {kind.__name__}")
        chosen = next(base for base in kind.__mro__ if base in entries)
        for registered in entries:
            frame.ex.guards.register(Key(registry.source, registered))
    return frame.ex.wrap(entries[chosen], Key(registry.source, chosen))


for _code in functools.singledispatch.__code__.co_consts:
    if isinstance(_code, types.CodeType) and _code.co_name == "dispatch" and "registry" in _code.co_freevars:
        SPECIAL_CODES[_code] = _dispatch


# -- itemgetter, attrgetter, methodcaller -----------------------------------------------------------------------------------------


def _getter(kind: type) -> None:
    @meaning(kind)
    def make(frame: Frame, *args: Any, **kwargs: Any) -> Value:
        if not args or (kwargs and kind is not operator.methodcaller):
            refuse("WOULD_RAISE", f"{kind.__name__}() with these arguments")
        if kind is not operator.itemgetter and not all(isinstance(plain(frame, a), str) for a in args[: _names(kind, args)]):
            refuse("WOULD_RAISE", f"{kind.__name__}() of something that is no name")
        return Getter(kind, tuple(frame.ex.resolve(a) for a in args), kwargs)

    def call_given(frame: Frame, value: Object, args: Arguments, kwargs: Keywords) -> Value:
        return call(frame, _of_the_callers(frame, value), args, kwargs)

    OBJECT_CALLERS[kind] = call_given


def _names(kind: type, args: Any) -> int:
    return 1 if kind is operator.methodcaller else len(args)


def _of_the_callers(frame: Frame, value: Object) -> Getter:
    """A getter of the caller's: what it holds is fixed, so its identity is guarded."""
    frame.ex.guards.add("is", value.source, value.value, says=f" is {value.value!r}")  # type: ignore[arg-type]
    made, args = value.value.__reduce__()
    named: dict[str, Any] = {}
    if isinstance(made, functools.partial):  # a methodcaller with keywords
        args, named = (*made.args, *args), made.keywords
    given = tuple(known(frame, a, f"{value.source}({a!r})") for a in args)
    return Getter(value.kind, given, {k: known(frame, v, f"{value.source}({k})") for k, v in named.items()})


@caller(Getter)
def _call_getter(frame: Frame, getter: Getter, args: Arguments, kwargs: Keywords) -> Value:
    if len(args) != 1 or kwargs:
        refuse("WOULD_RAISE", f"{getter.kind.__name__} takes one argument")
    owner = args[0]
    if getter.kind is operator.methodcaller:
        method = load_attribute(frame, owner, plain(frame, getter.args[0]))
        return call(frame, method, list(getter.args[1:]), dict(getter.kwargs))
    read = subscript if getter.kind is operator.itemgetter else _dotted
    found = [read(frame, owner, key) for key in getter.args]
    return found[0] if len(found) == 1 else Sequence(tuple, found)


def _dotted(frame: Frame, owner: Any, path: Any) -> Value:
    for name in plain(frame, path).split("."):
        owner = load_attribute(frame, owner, name)
    return owner


OBJECT_CALLERS[functools.partial] = _call_partial
for _kind in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
    _getter(_kind)


# -- operators --------------------------------------------------------------------------------------------------------------------

IN_PLACE = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv, "//": operator.ifloordiv,
    "%": operator.imod, "**": operator.ipow, "<<": operator.ilshift, ">>": operator.irshift, "&": operator.iand, "|": operator.ior,
    "^": operator.ixor, "@": operator.imatmul,
}  # fmt: skip


def _in_place(symbol: str) -> Callable[..., Value]:
    return lambda frame, left, right: in_place(frame, symbol, left, right)


def _joined(join: Callable[..., Value]) -> Callable[..., Value]:
    def concatenate(frame: Frame, left: Any, right: Any) -> Value:
        left, right = frame.ex.resolve(left), frame.ex.resolve(right)
        if not all(isinstance(v, Sequence) or (isinstance(v, Const) and type(v.value) in (str, bytes)) for v in (left, right)):
            refuse("UNSUPPORTED_ARGUMENT", "concatenation of things that are no lists, tuples or strings")
        return join(frame, "+", left, right)

    return concatenate


SPECIAL |= {function: _in_place(symbol) for symbol, function in IN_PLACE.items()}
SPECIAL |= {
    operator.pos: lambda frame, value: unary(frame, "pos", value),
    operator.invert: lambda frame, value: unary(frame, "invert", value),
    operator.abs: SPECIAL[abs],
    operator.concat: _joined(binary),
    operator.iconcat: _joined(in_place),
}
if hasattr(operator, "call"):
    SPECIAL[operator.call] = lambda frame, function, *args, **kwargs: call(frame, function, list(args), kwargs)


@meaning(operator.countOf)
def _count_of(frame: Frame, values: Any, item: Any) -> Value:
    return Const(sum(same_or_equal(frame, candidate, item) for candidate in items_of(frame, values)))


@meaning(operator.indexOf)
def _index_of(frame: Frame, values: Any, item: Any) -> Value:
    iterator, position = iterate(frame, values), 0
    while (candidate := iterator.step(frame)) is not NULL:
        if same_or_equal(frame, candidate, item):
            return Const(position)
        position += 1
    return throw(ValueError("sequence.index(x): x not in sequence"))


@meaning(operator.length_hint)
def _length_hint(frame: Frame, value: Any, default: Any = Const(0)) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Items) and value.owner is None:
        return Const(len(value.items) - value.position if value.position >= 0 else 0)
    if isinstance(value, (Array, Object)) or not hasattr(value, "items"):
        if not isinstance(value, Array):
            refuse("UNSUPPORTED_ARGUMENT", "length_hint() of this kind of object")
        return call(frame, Const(len), [value], {})
    return Const(length(frame.ex, value))


# -- np.s_ ------------------------------------------------------------------------------------------------------------------------


def _of_index_expression(frame: Frame, owner: Any, item: Any) -> Value:
    """``np.s_[...]`` and ``np.index_exp[...]``."""
    owner, item = frame.ex.resolve(owner), frame.ex.resolve(item)
    as_tuple = plain(frame, load_attribute(frame, owner, "maketuple"))
    return item if not as_tuple or (isinstance(item, Sequence) and item.kind is tuple) else Sequence(tuple, [item])


SPECIAL_FUNCTIONS[type(np.s_).__getitem__] = _of_index_expression


# -- writes into arrays -----------------------------------------------------------------------------------------------------------


@meaning(np.copyto)
def _copy_to(frame: Frame, dst: Any, src: Any, casting: Any = Const("same_kind"), where: Any = Const(True)) -> Value:
    array_writes.copy_to(frame.ex, frame.ex.resolve(dst), src, plain(frame, casting), where)
    return Const(None)


@meaning(np.put)
def _put(frame: Frame, a: Any, ind: Any, v: Any, mode: Any = Const("raise")) -> Value:
    array_writes.put(frame.ex, a, ind, v, mode)
    return Const(None)


@meaning(np.putmask)
def _put_mask(frame: Frame, a: Any, /, mask: Any, values: Any) -> Value:
    array_writes.put_mask(frame.ex, a, mask, values)
    return Const(None)


@meaning(np.place)
def _place(frame: Frame, arr: Any, mask: Any, vals: Any) -> Value:
    array_writes.place(frame.ex, arr, mask, vals)
    return Const(None)


@meaning(np.put_along_axis)
def _put_along_axis(frame: Frame, arr: Any, indices: Any, values: Any, axis: Any = Const(-1)) -> Value:
    array_writes.put_along_axis(frame.ex, arr, indices, values, plain(frame, axis))
    return Const(None)


@meaning(np.fill_diagonal)
def _fill_diagonal(frame: Frame, a: Any, val: Any, wrap: Any = Const(False)) -> Value:
    array_writes.fill_diagonal(frame.ex, a, val, bool(plain(frame, wrap)))
    return Const(None)


@meaning(np.piecewise)
def _piecewise(frame: Frame, x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Value:
    """As NumPy does it; the functions are called with what the conditions choose."""
    ex = frame.ex
    x = ex.resolve(x)
    if not isinstance(x, Array) or x.node.ndim == 0:
        refuse("UNSUPPORTED_ARGUMENT", "piecewise: of something that is no array")
    conditions, functions = _conditions(frame, condlist), items_of(frame, funclist)
    if len(conditions) == len(functions) - 1:
        rest = conditions[0]
        for condition in conditions[1:]:
            rest = call(frame, Const(np.logical_or), [rest, condition], {})
        conditions.append(call(frame, Const(np.logical_not), [rest], {}))
    if len(conditions) != len(functions):
        refuse("WOULD_RAISE", "piecewise: as many functions as conditions, or one more")
    y = call(frame, Const(np.zeros_like), [x], {})
    assert isinstance(y, Array)
    for condition, function in zip(conditions, functions):
        function = frame.ex.resolve(function)
        value, before = function, len(ex.effects)
        if not isinstance(function, (Array, Number)) and not (isinstance(function, Const) and not callable(function.value)):
            value = call(frame, function, [subscript(frame, x, condition), *args], kw)
        if len(ex.effects) != before:
            refuse("SIDE_EFFECT", "piecewise: of a function that has effects, which is called only where elements are chosen")
        array_writes.store_item(ex, y, condition, value)
    return y


def _conditions(frame: Frame, condlist: Any) -> list[Value]:
    """The conditions as arrays of bools: one, or a list of several."""
    condlist = frame.ex.resolve(condlist)
    several = isinstance(condlist, Sequence) and all(isinstance(c, Array) and c.node.ndim for c in items_of(frame, condlist))
    if not several and not (isinstance(condlist, Array) and condlist.node.ndim):
        refuse("UNSUPPORTED_ARGUMENT", "piecewise: conditions that are no arrays")
    given = items_of(frame, condlist) if several else [condlist]
    if not several and condlist.node.ndim > 1:
        refuse("UNSUPPORTED_ARGUMENT", "piecewise: one condition that may be several")
    kind = Const(np.bool_)
    return [call(frame, kind, [c], {}) for c in given]
