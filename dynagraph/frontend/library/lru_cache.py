"""functools.lru_cache in captured code: the cache's contents are guarded, and the real call is made as an effect.

A hit gives what the cache holds; the effect counts it, and makes the entry the most recent one.  At a miss, guarded as well, the
body is followed to know the result; what the body does is left to the effect: it is done once, and the cache keeps its result.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
from dataclasses import dataclass, field
from typing import Any

from dynagraph.frontend.executor.calls import Arguments, Keywords, call, call_numpy, is_of_numpy
from dynagraph.frontend.executor.exceptions import Raised, refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.guards.guards import Is, Length, NoKey
from dynagraph.frontend.guards.sources import Field, Key, Known, Returned
from dynagraph.frontend.kinds.lookup import guard_type, in_mro
from dynagraph.frontend.kinds.slots import known_number, plain
from dynagraph.frontend.kinds.values import Const, Dict, Object, Sequence, Set, Value, source_of
from dynagraph.frontend.library.registry import instances, meaning

WRAPPER: Any = type(functools.lru_cache(len))
PARAMETERS = frozenset(  # the codes of cache_parameters, which tell whether the types of arguments count
    code
    for outer in (functools.lru_cache.__code__, *functools.lru_cache.__code__.co_consts)
    for code in getattr(outer, "co_consts", ())
    if getattr(code, "co_name", "") == "<lambda>"
)
ATOMS = (int, str, bytes, float, bool, complex, type(None), type)




def _offset(owner: Any, held: Any) -> int | None:
    """Where the C structure of an object refers to another one."""
    pointer = ctypes.sizeof(ctypes.c_void_p)
    places = range(object.__basicsize__, type(owner).__basicsize__ - pointer + 1, pointer)
    found = [k for k in places if ctypes.c_void_p.from_address(id(owner) + k).value == id(held)]
    return found[0] if len(found) == 1 else None


def _probe_links() -> tuple[Any, int | None, int | None, int | None]:
    """The type of the links in a cache with a bound; where one holds its result, and the next; where a wrapper holds the first."""
    results = {"older": object(), "newer": object()}
    probe = functools.lru_cache(maxsize=2)(results.__getitem__)
    for key in results:
        probe(key)
    entries = next((held for held in gc.get_referents(probe) if type(held) is dict and held.keys() == results.keys()), None)
    if entries is None:
        return None, None, None, None
    older, newer = entries["older"], entries["newer"]
    return type(older), _offset(older, results["older"]), _offset(older, newer), _offset(probe, older)


LINK, RESULT, NEXT, ROOT = _probe_links()
MAX_ORDERED = 16  # entries whose order is worth the guards


@dataclass
class Cache:
    """What is known of one cache in one capture; `touched`: keys in the order of their last use, with the results."""

    wrapper: Any
    entries: dict[Any, Any]
    keys: list[Any]  # of a cache with a bound, least recently used first
    function: Any
    mark: Any  # what separates keywords in a key
    maxsize: int | None
    typed: bool
    touched: dict[Any, Value] = field(default_factory=dict)
    added: int = 0

    @property
    def source(self) -> Known:
        return Known(self.entries, f"cache of {self.wrapper.__name__}")


def _read(wrapper: Any) -> Cache:
    """What a cache holds, by way of the garbage collector: there is no other."""
    held, at, keys = gc.get_referents(wrapper), 1, []
    while len(held) > at + 3 and getattr(held[at + 2], "__name__", "") == "_lru_list_elem":
        keys.append(held[at])
        at += 3
    parameters = getattr(wrapper, "cache_parameters", None)
    known = len(held) > at + 3 and type(held[at]) is dict and type(held[at + 2]) is object
    if not known or getattr(parameters, "__code__", None) not in PARAMETERS:
        refuse("UNSUPPORTED_FUNCTION", "a cache of an unknown kind")
    told = parameters()  # type: ignore[misc]
    maxsize = wrapper.cache_info().maxsize
    if maxsize == 0 or type(held[at + 1]) is not type(_read):
        refuse("UNSUPPORTED_FUNCTION", "a cache of nothing, or of a function written in C")
    return Cache(wrapper, held[at], keys, held[at + 1], held[at + 2], maxsize, told["typed"])


@meaning(instances(WRAPPER))
def call_cached(frame: Frame, value: Object, args: Arguments, kwargs: Keywords) -> Value:
    ex = frame.ex
    ex.guards.require(Is(source_of(value), value.value, called=repr(value.value)))
    if is_of_numpy(value.value):  # of NumPy's own, which nobody else looks into
        return call_numpy(frame, value.value, args, kwargs)
    cache = ex.caches.get(id(value.value))
    if cache is None:
        cache = ex.caches[id(value.value)] = _read(value.value)
    given = [_argument(frame, a) for a in args]
    named = {name: _argument(frame, v) for name, v in kwargs.items()}
    key = _key(cache, given, named)
    result = _held(frame, cache, key)
    made = Returned(functools.partial(cache.wrapper, **named) if named else cache.wrapper, cache.wrapper.__name__)
    if result is None:
        result = _missed(frame, cache, made, args, kwargs)
        cache.added += 1
        ex.effect(made, *args)
    else:
        ex.effect(made.function, *args)
    cache.touched.pop(key, None)
    cache.touched[key] = result
    return result


# -- keys -------------------------------------------------------------------------------------------------------------------------


def _argument(frame: Frame, value: Any) -> Any:
    """An argument as the Python object that it is: a number or text, or what is hashed by identity."""
    value = frame.ex.resolve(value)
    if isinstance(value, Object) and value.source is not None:
        guard_type(frame, value)
        if in_mro(value.kind, "__hash__") is object.__hash__ and in_mro(value.kind, "__eq__") is object.__eq__:
            frame.ex.guards.require(Is(value.source, value.value))
            return value.value
    if isinstance(value, Sequence) and issubclass(value.kind, tuple) and _is_equal_as_tuples(value.kind):
        return tuple.__new__(value.kind, [_argument(frame, item) for item in value.items])
    number = known_number(plain(frame, value)) if isinstance(value, Const) else None
    if not isinstance(value, Const) or type(number) not in ATOMS or number != number:
        refuse("UNSUPPORTED_ARGUMENT", "an argument of a function with a cache that is not a number or text")
    return number


def _is_equal_as_tuples(kind: type) -> bool:
    return kind.__hash__ is tuple.__hash__ and kind.__eq__ is tuple.__eq__


def _key(cache: Cache, args: list[Any], named: dict[str, Any]) -> Any:
    """The key under which the cache has a call."""
    if not cache.typed and not named and len(args) == 1 and type(args[0]) in (int, str):
        return args[0]
    key = tuple(args)
    if named:
        key += (cache.mark, *itertools.chain.from_iterable(named.items()))
    if cache.typed:
        key += tuple(type(v) for v in (*args, *named.values()))
    return key


# -- what the cache holds ---------------------------------------------------------------------------------------------------------


def _held(frame: Frame, cache: Cache, key: Any) -> Value | None:
    """What the cache holds for the key at this point of the program, guarded; None where it has no such entry."""
    limit = cache.maxsize
    recent = list(cache.touched)[-limit:] if limit is not None else list(cache.touched)
    if key in cache.touched:
        return cache.touched[key] if key in recent else None
    if limit is not None and cache.added:
        if len(recent) == limit:
            return None
        frame.ex.guards.require(Length(cache.source, len(cache.entries)))
        if len(cache.entries) + cache.added > limit:
            older = [k for k in _order(frame, cache) if k not in cache.touched]
            if key not in older[len(recent) - limit :]:
                return None
    if key not in cache.entries:
        frame.ex.guards.require(NoKey(cache.source, key))
        return None
    place = Key(cache.source, key)
    if limit is None:
        return frame.ex.wrap(cache.entries[key], place)
    return _held_by_link(frame, cache, key, place)


def _order(frame: Frame, cache: Cache) -> list[Any]:
    """The keys, least recently used first, guarded."""
    if ROOT is None or NEXT is None or len(cache.keys) > MAX_ORDERED or len(cache.keys) != len(cache.entries):
        refuse("UNSUPPORTED_FUNCTION", "a cache that has forgotten something meanwhile")
    place: Any = Field(Known(cache.wrapper, cache.wrapper.__name__), WRAPPER, ROOT)
    for key in cache.keys:
        link = cache.entries[key]
        frame.ex.guards.require(Is(place, link, called=f"the entry of {key!r}"))
        frame.ex.guards.require(Is(Key(cache.source, key), link, called="the same entry"))
        place = Field(place, LINK, NEXT)
    return cache.keys


def _held_by_link(frame: Frame, cache: Cache, key: Any, place: Key) -> Value:
    """In a cache with a bound the entries are links of a list, which hold the results."""
    link = cache.entries[key]
    field = None if RESULT is None else Field(place, type(link), RESULT)
    if field is None or type(link) is not LINK:
        return refuse("UNSUPPORTED_FUNCTION", "a cache with a bound")
    return frame.ex.wrap(field.read(link), field)


# -- misses -----------------------------------------------------------------------------------------------------------------------


def _missed(frame: Frame, cache: Cache, made: Returned, args: Arguments, kwargs: Keywords) -> Value:
    """Follow the body for its result; what it does is done by the real call, which must find the world as it was found here."""
    ex = frame.ex
    before = len(ex.effects)
    _require_real(frame, 0, cache.wrapper.__name__)
    function = ex.wrap(cache.function, Known(cache.function, f"{cache.wrapper.__name__}.__wrapped__"))
    try:
        result = ex.resolve(call(frame, function, args, kwargs))
    except Raised:
        refuse("UNSUPPORTED_FUNCTION", "a function with a cache that raises")
    _require_real(frame, before, cache.wrapper.__name__)
    del ex.effects[before:]
    if isinstance(result, (Sequence, Dict, Set)) and result.source is None:
        items = result.items.values() if isinstance(result, Dict) else result.items if isinstance(result, Sequence) else ()
        if all(isinstance(ex.resolve(item), Const) for item in items) and not getattr(result, "fields", None):
            result.source = made
            return result
    if isinstance(result, Const) or getattr(result, "source", None) is not None:
        return result
    return refuse("COLD_CACHE", f"{cache.wrapper.__name__}, which makes arrays or objects")


def _require_real(frame: Frame, start: int, name: str) -> None:
    """Nothing that the captured code made has been put where the body could find it: it is there only after all effects."""
    for _, args in frame.ex.effects[start:]:
        for value in args:
            if not _is_real(frame, value):
                refuse("COLD_CACHE", f"{name}, after effects that hold new objects")


def _is_real(frame: Frame, value: Any) -> bool:
    value = frame.ex.resolve(value)
    if isinstance(value, Sequence) and value.kind is tuple:
        return all(_is_real(frame, item) for item in value.items)
    return isinstance(value, Const) or getattr(value, "source", None) is not None
