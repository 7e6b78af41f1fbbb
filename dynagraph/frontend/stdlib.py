"""What functions of the standard library mean: itertools, collections, copy, output that is deferred to its place in the order of
effects, imports and the environment.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib.util
import itertools
import logging
import operator
import os
import reprlib
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.frontend.assemble import called_from
from dynagraph.frontend.attributes import load_attribute
from dynagraph.frontend.builtins_table import born, meaning
from dynagraph.frontend.calls import SPECIAL_CODES, SPECIAL_FUNCTIONS, call
from dynagraph.frontend.exceptions import refuse, throw
from dynagraph.frontend.executor import Frame
from dynagraph.frontend.iterators import Count, Filter, Repeat, Stepped, called, items_of, iterate
from dynagraph.frontend.methods import bases_of, most_common, pairs_of
from dynagraph.frontend.numpy_source import is_numpys
from dynagraph.frontend.objects import in_mro
from dynagraph.frontend.operations import binary, entries_of, key_of, known_number, plain, put_key, same_or_equal
from dynagraph.frontend.resume import STAND_INS
from dynagraph.frontend.source import Attribute, DictEntry, Key
from dynagraph.frontend.truth import truth
from dynagraph.frontend.values import NULL, Const, Dict, Function, Method, Object, Sequence, Set, Value
from dynagraph.frontend.wrapping import load_cell
from dynagraph.ir.shapes import SymInt
from dynagraph.location import is_ours, warn_at

# -- itertools --------------------------------------------------------------------------------------------------------------------


def _lazily(
    what: str, function: Any, first: int = 0, last: int | None = 0, stateless: bool = False, take: Callable[..., Any] = iterate
) -> Callable[..., Any]:
    """Register a Python generator over values as the meaning of an iterator class.

    The arguments from `first` up to `last` are iterated at once.  `stateless`: what is left is all in their iterators.
    """

    def register(steps: Callable[..., Any]) -> Callable[..., Any]:
        @meaning(function)
        def make(frame: Frame, *args: Any, **kwargs: Any) -> Value:
            given = list(args)
            given[first:last] = [take(frame, a) for a in given[first:last]]
            again = called, (Const(function), Sequence(tuple, list(given)), Dict(dict(kwargs)))
            return born(frame, Stepped(what, steps(frame, *given, **kwargs), again, stateless))

        return steps

    return register


def _each(frame: Frame, iterable: Any) -> Any:
    iterator = iterate(frame, iterable)
    while (item := iterator.step(frame)) is not NULL:
        yield item


@_lazily("chain", itertools.chain)
def _chain(frame: Frame, *iterables: Any) -> Any:
    for iterable in iterables:
        yield from _each(frame, iterable)


@_lazily("chain", itertools.chain.from_iterable)
def _chain_from(frame: Frame, iterable: Any) -> Any:
    for inner in _each(frame, iterable):
        yield from _each(frame, inner)


def _all_items(frame: Frame, iterable: Any) -> Value:
    return Sequence(tuple, items_of(frame, iterable))


def _rows(name: str) -> Any:
    function = getattr(itertools, name)

    def steps(frame: Frame, *iterables: Any, **options: Any) -> Any:
        split = len(iterables) if name == "product" else 1
        columns = [items_of(frame, i) for i in iterables[:split]]
        rest = [known_number(plain(frame, i)) for i in iterables[split:]]
        try:
            rows = function(*columns, *rest, **{k: known_number(plain(frame, v)) for k, v in options.items()})
        except (TypeError, ValueError, OverflowError, MemoryError) as error:
            return throw(error)
        return (Sequence(tuple, list(row)) for row in rows)

    return steps


for _name in ("product", "permutations", "combinations", "combinations_with_replacement"):
    _lazily(_name, getattr(itertools, _name), last=None if _name == "product" else 1, take=_all_items)(_rows(_name))


@_lazily("islice", itertools.islice, last=1)
def _islice(frame: Frame, iterable: Any, *bounds: Any) -> Any:
    window = [known_number(plain(frame, b)) for b in bounds]
    try:
        itertools.islice((), *window)
    except (TypeError, ValueError) as error:
        throw(error)
    return _window(frame, iterable, slice(*window))


def _window(frame: Frame, iterable: Any, window: slice) -> Any:
    start, step = (window.start or 0), (window.step or 1)
    iterator, wanted = iterate(frame, iterable), start
    for position in itertools.count():
        if window.stop is not None and position >= window.stop:
            return
        item = iterator.step(frame)
        if item is NULL:
            return
        if position == wanted:
            wanted += step
            yield item


@meaning(itertools.count)
def _count(frame: Frame, start: Any = Const(0), step: Any = Const(1)) -> Value:
    value = frame.ex.resolve(start)
    if isinstance(value, Const) and not isinstance(value.value, (int, float, complex, SymInt)):
        refuse("WOULD_RAISE", "count() of something that is no number")
    return born(frame, Count(binary, value, frame.ex.resolve(step)))


@_lazily("accumulate", itertools.accumulate, last=1)
def _accumulate(frame: Frame, iterable: Any, func: Any = Const(None), *, initial: Any = Const(None)) -> Any:
    total = frame.ex.resolve(initial)
    adds = isinstance(frame.ex.resolve(func), Const) and frame.ex.resolve(func).value in (None, operator.add)
    started = not (isinstance(total, Const) and total.value is None)
    if started:
        yield total
    for item in _each(frame, iterable):
        if started:
            total = binary(frame, "+", total, item) if adds else call(frame, func, [total, item], {})
        else:
            total, started = item, True
        yield total


@meaning(itertools.repeat)
def _repeat(frame: Frame, object: Any, times: Any = NULL) -> Value:
    count = None if times is NULL else plain(frame, times)
    if times is not NULL and not isinstance(count, (int, SymInt)):
        refuse("WOULD_RAISE", "repeat() of something that is no number of times")
    return born(frame, Repeat(object, None if count is None else int(count)))


@_lazily("cycle", itertools.cycle, last=1)
def _cycle(frame: Frame, iterable: Any) -> Any:
    seen = []
    for item in _each(frame, iterable):
        seen.append(item)
        yield item
    while seen:
        yield from seen


@_lazily("zip_longest", itertools.zip_longest, last=None, stateless=True)
def _zip_longest(frame: Frame, *iterables: Any, fillvalue: Any = Const(None)) -> Any:
    columns = [iterate(frame, i) for i in iterables]
    while True:
        row = [c.step(frame) for c in columns]
        if all(item is NULL for item in row):
            return
        yield Sequence(tuple, [frame.ex.resolve(fillvalue) if item is NULL else item for item in row])


@_lazily("pairwise", itertools.pairwise, last=1)
def _pairwise(frame: Frame, iterable: Any) -> Any:
    before = NULL
    for item in _each(frame, iterable):
        if before is not NULL:
            yield Sequence(tuple, [before, item])
        before = item


@_lazily("starmap", itertools.starmap, first=1, last=2, stateless=True)
def _starmap(frame: Frame, function: Any, iterable: Any) -> Any:
    for row in _each(frame, iterable):
        yield call(frame, function, items_of(frame, row), {})


@_lazily("takewhile", itertools.takewhile, first=1, last=2)
def _takewhile(frame: Frame, predicate: Any, iterable: Any) -> Any:
    for item in _each(frame, iterable):
        if not truth(frame, call(frame, predicate, [item], {})):
            return
        yield item


@_lazily("dropwhile", itertools.dropwhile, first=1, last=2)
def _dropwhile(frame: Frame, predicate: Any, iterable: Any) -> Any:
    dropping = True
    for item in _each(frame, iterable):
        dropping = dropping and truth(frame, call(frame, predicate, [item], {}))
        if not dropping:
            yield item


@_lazily("compress", itertools.compress, last=2, stateless=True)
def _compress(frame: Frame, data: Any, selectors: Any) -> Any:
    for item, chosen in zip(_each(frame, data), _each(frame, selectors)):
        if truth(frame, chosen):
            yield item


@_lazily("groupby", itertools.groupby, last=1)
def _groupby(frame: Frame, iterable: Any, key: Any = Const(None)) -> Any:
    none = isinstance(frame.ex.resolve(key), Const) and frame.ex.resolve(key).value is None
    groups: list[tuple[Any, list[Any]]] = []
    for item in _each(frame, iterable):
        name = item if none else call(frame, key, [item], {})
        if groups and same_or_equal(frame, groups[-1][0], name):
            groups[-1][1].append(item)
        else:
            groups.append((name, [item]))
    for name, items in groups:
        yield Sequence(tuple, [name, iterate(frame, Sequence(list, items))])


@meaning(itertools.filterfalse)
def _filterfalse(frame: Frame, function: Any, iterable: Any) -> Value:
    return born(frame, Filter(call, frame.ex.resolve(function), iterate(frame, iterable), keep=False))


# -- collections ----------------------------------------------------------------------------------------------------------------


@meaning(collections.deque)
def _deque(frame: Frame, iterable: Any = None, maxlen: Any = Const(None)) -> Value:
    limit = plain(frame, maxlen)
    items = [] if iterable is None else items_of(frame, iterable)
    return Sequence(collections.deque, items if limit is None else items[max(len(items) - limit, 0) :], maxlen=limit)


@meaning(collections.OrderedDict)
def _ordered_dict(frame: Frame, *args: Any, **kwargs: Any) -> Value:
    return _mapping(frame, Dict({}, kind=collections.OrderedDict), args, kwargs)


@meaning(collections.defaultdict)
def _defaultdict(frame: Frame, factory: Any = Const(None), *args: Any, **kwargs: Any) -> Value:
    return _mapping(frame, Dict({}, kind=collections.defaultdict, factory=frame.ex.resolve(factory)), args, kwargs)


@meaning(collections.Counter)
def _counter(frame: Frame, *args: Any, **kwargs: Any) -> Value:
    made = Dict({}, kind=collections.Counter)
    given = frame.ex.resolve(args[0]) if args else None
    if isinstance(given, Dict):
        return _mapping(frame, made, args, kwargs)
    for item in items_of(frame, given) if given is not None else ():
        before = made.items.get(key_of(frame, item), Const(0))
        put_key(frame, made, item, binary(frame, "+", before, Const(1)))
    return _mapping(frame, made, (), kwargs)


def _mapping(frame: Frame, made: Dict, args: Any, kwargs: dict[str, Any]) -> Dict:
    for arg in args:
        for key, value in pairs_of(frame, arg):
            put_key(frame, made, key, value)
    for name, value in kwargs.items():
        put_key(frame, made, Const(name), value)
    return made


@meaning(collections._count_elements)  # type: ignore[attr-defined]
def _count_elements(frame: Frame, counts: Any, iterable: Any) -> Value:
    for item in _each(frame, iterable):
        before = call(frame, Method("get", counts), [item, Const(0)], {})
        call(frame, Method("__setitem__", counts), [item, binary(frame, "+", before, Const(1))], {})
    return Const(None)


SPECIAL_FUNCTIONS[collections.Counter.most_common] = most_common


# -- texts of objects that may hold themselves -------------------------------------------------------------------------------------


def _recursive_repr(frame: Frame, wrapper: Function, value: Any) -> Value:
    value = frame.ex.resolve(value)
    cells = dict(zip(wrapper.code.co_freevars, wrapper.closure))
    if id(value) in frame.ex.shown:
        return load_cell(frame.ex, cells["fillvalue"]) if "fillvalue" in cells else Const("...")
    frame.ex.shown.add(id(value))
    try:
        return call(frame, load_cell(frame.ex, cells["user_function"]), [value], {})
    finally:
        frame.ex.shown.discard(id(value))


SPECIAL_CODES[reprlib.recursive_repr()(repr).__code__] = _recursive_repr
if hasattr(dataclasses, "_recursive_repr"):  # until 3.11
    SPECIAL_CODES[dataclasses._recursive_repr(repr).__code__] = _recursive_repr


# -- output, deferred -------------------------------------------------------------------------------------------------------------


def snapshot(frame: Frame, value: Any) -> Value:
    """What a value is now, for output that is made later: containers are copied, text is made of what has a text of its own."""
    value = frame.ex.resolve(value)
    if isinstance(value, Const):
        return value
    if isinstance(value, Sequence) and value.kind in (list, tuple):
        return Sequence(value.kind, [snapshot(frame, item) for item in items_of(frame, value)])
    if isinstance(value, Dict) and value.kind is dict:
        return Dict({k: snapshot(frame, v) for k, v in entries_of(frame, value).items()})
    if isinstance(value, Set):
        return Set(value.kind, value.kind(value.items), bases=bases_of(frame, value))
    return Const(_text(frame, value))


def _text(frame: Frame, value: Any) -> str:
    text = plain(frame, call(frame, Const(str), [value], {}))
    assert isinstance(text, str)
    return text


@meaning(print)
def _print(frame: Frame, *args: Any, **options: Any) -> Value:
    file = frame.ex.resolve(options.pop("file", Const(None)))
    if not (isinstance(file, Const) and file.value is None):
        return _print_to(frame, file, args, {k: plain(frame, v) for k, v in options.items()})
    out, place = vars(sys).get("stdout"), DictEntry(vars(sys), "stdout", "sys")
    if (id(vars(sys)), "stdout") in frame.ex.stored:
        return _print_to(frame, load_attribute(frame, Const(sys), "stdout"), args, {k: plain(frame, v) for k, v in options.items()})
    if out is not None and not isinstance(in_mro(type(out), "write"), types.MethodDescriptorType):
        return _print_to(frame, frame.ex.wrap(out, place), args, {k: plain(frame, v) for k, v in options.items()})
    if out is not None:
        frame.ex.guards.add("type", place, type(out), says=f" is a {type(out).__name__}")
    shown = [snapshot(frame, a) for a in args]
    named = {k: plain(frame, v) for k, v in options.items()}
    frame.ex.effect(called_with(print, named), *shown)
    return Const(None)


def _print_to(frame: Frame, file: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Value:
    """Printing to an object of the user's: calls of its methods."""
    write = load_attribute(frame, file, "write")
    if not (isinstance(write, Method) and isinstance(write.function, Function)) and not isinstance(write, Function):
        refuse("UNSUPPORTED_ARGUMENT", "print to a file")
    sep, end = options.get("sep"), options.get("end")
    for k, arg in enumerate(args):
        if k:
            call(frame, write, [Const(" " if sep is None else sep)], {})
        call(frame, write, [call(frame, Const(str), [arg], {})], {})
    call(frame, write, [Const("\n" if end is None else end)], {})
    if options.get("flush"):
        call(frame, load_attribute(frame, file, "flush"), [], {})
    return Const(None)


def called_with(function: Any, named: dict[str, Any]) -> Any:
    """`function` with keyword arguments fixed."""
    return (lambda *args: function(*args, **named)) if named else function


def from_here(frame: Frame, function: Value, *args: Value) -> None:
    """Have the program call `function` from frames that stand on the lines of those that run now: for warnings and logs."""
    places = [types.FunctionType(called_from(f.code, _line(f)), f.function.globals) for f in frame.ex.running]
    frame.ex.effect(places[0], *map(Const, places[1:]), function, *args)


def _line(frame: Frame) -> int:
    return frame.instructions[frame.ip - 1].line


@meaning(warnings.warn)
def _warn(frame: Frame, message: Any, category: Any = Const(None), stacklevel: Any = Const(1), **more: Any) -> Value:
    level, running = plain(frame, stacklevel), len(frame.ex.running)
    if is_numpys(frame.function.globals):
        refuse("SIDE_EFFECT", "NumPy gives a warning")
    if more or frame.ex.in_try():
        refuse("SIDE_EFFECT", "a warning inside try, where it may be an error, or with a source")
    message = frame.ex.resolve(message)
    if not (isinstance(message, Object) and issubclass(message.kind, Warning)):
        message = Const(plain(frame, message))
    kind = frame.ex.resolve(category)
    if not isinstance(kind, Const):
        refuse("UNSUPPORTED_ARGUMENT", "the category of a warning")
    if level <= running:
        from_here(frame, Const(warnings.warn), message, kind, Const(level))
    else:
        frame.ex.effect(warn_above, message, kind, Const(level - running))
    return Const(None)


def warn_above(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any) -> None:
    """``warnings.warn`` called by the code of a compiled function, or (level 1) by its caller: frames that the program run as it
    is would not have do not count.
    """
    if more:
        return warnings.warn(message, category, stacklevel, source, **more)
    frame: Any = sys._getframe(1)
    while frame is not None and (stacklevel > 1 or _is_ours(frame)):
        stacklevel -= not _is_ours(frame)
        frame = frame.f_back
    kind = type(message) if isinstance(message, Warning) else UserWarning if category is None else category
    return warn_at(frame, message, kind, source)


STAND_INS[warnings.warn] = warn_above


def _is_ours(frame: types.FrameType) -> bool:
    """Whether a frame is one that the user's program run as it is would not have."""
    return is_ours(frame) or any(type(getattr(c, "__self__", None)) is _dispatch.Entry for c in frame.f_code.co_consts)


def log(frame: Frame, logger: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Value:
    """``logger.info(...)``, whose record tells the user's line."""
    if kwargs:
        refuse("UNSUPPORTED_ARGUMENT", "logging with keywords")
    method = Method(name, logger) if logger is not None else Const(getattr(logging, name))
    from_here(frame, method, *(snapshot(frame, a) for a in args))
    return Const(None)


def is_enabled_for(logger: Any, level: int) -> bool:
    """``logger.isEnabledFor(level)`` without the logger's cache, to be followed in the place of the real one."""
    if logger.disabled or logger.manager._disable >= level:
        return False
    while logger is not None:
        if logger.level:
            return level >= logger.level
        logger = logger.parent
    return level >= 0


def _is_enabled_for(frame: Frame, logger: Any, level: Any) -> Value:
    logger = frame.ex.resolve(logger)
    if in_mro(logger.kind, "getEffectiveLevel") is not logging.Logger.getEffectiveLevel:
        refuse("UNSUPPORTED_FUNCTION", "isEnabledFor() of a logger that has a getEffectiveLevel() of its own")
    function = Function(is_enabled_for.__code__, vars(logging), "isEnabledFor")
    return frame.ex.inline(function, {"logger": logger, "level": frame.ex.resolve(level)}, frame.depth + 1)


SPECIAL_FUNCTIONS[logging.Logger.isEnabledFor] = _is_enabled_for


def _log_function(name: str) -> Callable[..., Value]:
    return lambda frame, *args, **kwargs: log(frame, None, name, list(args), kwargs)


LOGGED = ("debug", "info", "warning", "error", "critical")
for _name in LOGGED:
    SPECIAL_FUNCTIONS[getattr(logging, _name)] = _log_function(_name)


def _log_method(name: str) -> Callable[..., Value]:
    return lambda frame, logger, *args, **kwargs: log(frame, frame.ex.resolve(logger), name, list(args), kwargs)


for _name in LOGGED:
    SPECIAL_FUNCTIONS[getattr(logging.Logger, _name)] = _log_method(_name)


# -- imports, the environment ---------------------------------------------------------------------------------------------------


def import_module(frame: Frame, name: str, names: Any, level: Any) -> Value:
    """``import name``: of a module that is loaded already, guarded to be the same one."""
    depth = plain(frame, level)
    if depth:
        name = importlib.util.resolve_name("." * depth + name, frame.function.globals.get("__package__") or "")
    wanted = plain(frame, names)
    top = name if wanted else name.split(".")[0]
    loaded = sys.modules.get(top)
    if loaded is None or sys.modules.get(name) is None:
        refuse("SIDE_EFFECT", f"module {name} is imported for the first time")
    frame.ex.guards.register(DictEntry(sys.modules, name, "module"))
    return frame.ex.wrap(loaded, DictEntry(sys.modules, top, "module"))


def environ_entry(frame: Frame, name: Any) -> Value | None:
    """A variable of the environment, guarded; None where it is not set."""
    data: Any = os.environ._data  # type: ignore[attr-defined]
    key = os.environ.encodekey(plain(frame, name))  # type: ignore[attr-defined]
    owner = DictEntry(vars(os), "environ", "os")
    frame.ex.guards.add("is", owner, os.environ, says=" is the environment")
    frame.ex.guards.add("is", Attribute(owner, "_data"), data, says=" is the same dict")
    if key not in data:
        frame.ex.guards.add("no_item", Attribute(owner, "_data"), key, says=f" has no {plain(frame, name)}")
        return None
    frame.ex.guards.add("equal", Key(Attribute(owner, "_data"), key), data[key], says=f" is {data[key]!r}")
    return Const(os.environ[plain(frame, name)])


def _getenv(frame: Frame, name: Any, default: Any = Const(None)) -> Value:
    found = environ_entry(frame, name)
    return frame.ex.resolve(default) if found is None else found


def _environ_item(frame: Frame, owner: Any, name: Any) -> Value:
    found = environ_entry(frame, name)
    return found if found is not None else throw(KeyError(plain(frame, name)))


SPECIAL_FUNCTIONS |= {os.getenv: _getenv}
SPECIAL_FUNCTIONS[type(os.environ).__getitem__] = _environ_item
