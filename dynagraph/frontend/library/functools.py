"""functools in captured code: partials, wrappers, dispatchers.

The parts of a partial of the caller's are guarded as they are read.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

from dynagraph.frontend.executor.calls import Arguments, Keywords, bind, call
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.wrapping import load_cell
from dynagraph.frontend.guards.guards import HasType, Length, NoKey
from dynagraph.frontend.guards.sources import Attribute, Key
from dynagraph.frontend.kinds.mappings import entries_of
from dynagraph.frontend.kinds.slots import attribute_or, items_of, plain, store_attribute
from dynagraph.frontend.kinds.values import Const, Dict, Function, Object, Partial, Value
from dynagraph.frontend.library.registry import instances, meaning

# -- partial ----------------------------------------------------------------------------------------------------------------------


def partial_parts(frame: Frame, value: Object) -> Partial:
    """A partial of the caller's, its parts guarded."""
    obj, source = value.value, value.source
    assert source is not None
    frame.ex.guards.require(HasType(source, functools.partial))
    args = frame.ex.wrap(obj.args, Attribute(source, "args"))
    keywords = frame.ex.wrap(obj.keywords, Attribute(source, "keywords"))
    if not isinstance(keywords, Dict):
        refuse("UNSUPPORTED_VALUE", "a partial with keywords of a kind of their own")
    function = frame.ex.wrap(obj.func, Attribute(source, "func"))
    return Partial(function, tuple(items_of(frame, args)), dict(entries_of(frame, keywords)))


@meaning(instances(functools.partial))
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


@meaning(functools.update_wrapper)
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
        frame.ex.guards.require(Length(Attribute(function.source, "__dict__"), 0))
    return {**found, **{k: v for k, v in function.fields.items() if not hasattr(types.FunctionType, k)}}


# -- singledispatch ---------------------------------------------------------------------------------------------------------------


DISPATCH = [
    c
    for c in functools.singledispatch.__code__.co_consts
    if isinstance(c, types.CodeType) and c.co_name == "dispatch" and "registry" in c.co_freevars
]


@meaning(*DISPATCH)
def _dispatch(frame: Frame, function: Function, args: Arguments, kwargs: Keywords) -> Value:
    """The implementation for a class: what the registry holds for it, or for the nearest base."""
    kind = plain(frame, bind(function, args, kwargs)["cls"])
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
        frame.ex.guards.require(Length(registry.source, len(entries)))
        if any(type(k) is not type for k in entries):
            return refuse("UNSUPPORTED_FUNCTION", "functools.singledispatch on abstract classes")
        frame.ex.guards.require(NoKey(registry.source, kind))
        chosen = next(base for base in kind.__mro__ if base in entries)
        for registered in entries:
            frame.ex.guards.register(Key(registry.source, registered))
    return frame.ex.wrap(entries[chosen], Key(registry.source, chosen))
