"""The rest of the standard library in captured code: collections, output (deferred to its place in the order of effects), imports
and the environment.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib.machinery
import importlib.util
import logging
import os
import reprlib
import sys
import types
import warnings
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.frontend.bytecode.assemble import called_from
from dynagraph.frontend.bytecode.resume import STAND_INS
from dynagraph.frontend.executor.calls import Arguments, Keywords, bind, call
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.numpy_source import is_numpys
from dynagraph.frontend.executor.wrapping import load_cell
from dynagraph.frontend.guards.guards import Equal, HasType, Is, NoKey
from dynagraph.frontend.guards.sources import Attribute, DictEntry, Key
from dynagraph.frontend.kinds.lookup import in_mro
from dynagraph.frontend.kinds.mappings import entries_of, put_key
from dynagraph.frontend.kinds.methods import pairs_of
from dynagraph.frontend.kinds.set_methods import bases_of
from dynagraph.frontend.kinds.slots import binary, items_of, key_of, load_attribute, plain
from dynagraph.frontend.kinds.values import Const, Dict, Function, Method, Object, Sequence, Set, Value
from dynagraph.frontend.library.registry import meaning
from dynagraph.location import is_ours, warn_at

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


# -- texts of objects that may hold themselves -------------------------------------------------------------------------------------


WRAPPERS = [reprlib.recursive_repr()(repr).__code__]
if hasattr(dataclasses, "_recursive_repr"):  # until 3.11
    WRAPPERS.append(dataclasses._recursive_repr(repr).__code__)


@meaning(*WRAPPERS)
def _recursive_repr(frame: Frame, wrapper: Function, args: Arguments, kwargs: Keywords) -> Value:
    value = frame.ex.resolve(bind(wrapper, args, kwargs)["self"])
    cells = dict(zip(wrapper.code.co_freevars, wrapper.closure))
    if id(value) in frame.ex.shown:
        return load_cell(frame.ex, cells["fillvalue"]) if "fillvalue" in cells else Const("...")
    frame.ex.shown.add(id(value))
    try:
        return call(frame, load_cell(frame.ex, cells["user_function"]), [value], {})
    finally:
        frame.ex.shown.discard(id(value))


# -- output, deferred -------------------------------------------------------------------------------------------------------------


class Representation(str):
    """What the ``repr`` of something was, as an item of a container that is shown later."""

    def __repr__(self) -> str:
        return str(self)


def snapshot(frame: Frame, value: Any, is_item: bool = False) -> Value:
    """What a value is now, for output that is made later: containers are copied, text is made of what has a text of its own."""
    value = frame.ex.resolve(value)
    if isinstance(value, Const):
        return value
    if isinstance(value, Sequence) and value.kind in (list, tuple):
        return Sequence(value.kind, [snapshot(frame, item, True) for item in items_of(frame, value)])
    if isinstance(value, Dict) and value.kind is dict:
        return Dict({k: snapshot(frame, v, True) for k, v in entries_of(frame, value).items()})
    if isinstance(value, Set):
        return Set(value.kind, value.kind(value.items), bases=bases_of(frame, value))
    return Const(Representation(_text(frame, value, repr)) if is_item else _text(frame, value))


def _text(frame: Frame, value: Any, made_by: Any = str) -> str:
    text = plain(frame, call(frame, Const(made_by), [value], {}))
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
        frame.ex.guards.require(HasType(place, type(out)))
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
    places = [types.FunctionType(called_from(f.code, _line(f)), f.function.globals) for f in _seen(frame)]
    frame.ex.effect(places[0], *map(Const, places[1:]), function, *args)


def _seen(frame: Frame) -> list[Frame]:
    """The frames that run now, as the user's program has them."""
    return [f for f in frame.ex.running if not f.is_hidden]


def _line(frame: Frame) -> int:
    return frame.instructions[frame.ip - 1].line


@meaning(warnings.warn)
def _warn(frame: Frame, message: Any, category: Any = Const(None), stacklevel: Any = Const(1), **more: Any) -> Value:
    level, running = plain(frame, stacklevel), len(_seen(frame))
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


def _logs(name: str) -> None:
    @meaning(getattr(logging, name))
    def by_function(frame: Frame, *args: Any, **kwargs: Any) -> Value:
        return log(frame, None, name, list(args), kwargs)

    @meaning(getattr(logging.Logger, name))
    def by_method(frame: Frame, logger: Any, *args: Any, **kwargs: Any) -> Value:
        return log(frame, frame.ex.resolve(logger), name, list(args), kwargs)


for _name in ("debug", "info", "warning", "error", "critical"):
    _logs(_name)


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
        if _is_found(name):
            refuse("FIRST_IMPORT", f"module {name}")
        refuse("SIDE_EFFECT", f"module {name} is imported for the first time")
    if wanted and hasattr(loaded, "__path__"):
        for part in wanted:
            if part != "*" and not _may_have(loaded, part) and _is_found(f"{name}.{part}"):
                refuse("FIRST_IMPORT", f"module {name}.{part}")
    frame.ex.guards.register(DictEntry(sys.modules, name, "module"))
    return frame.ex.wrap(loaded, DictEntry(sys.modules, top, "module"))


def import_from(frame: Frame, module: Any, name: str) -> Value:
    """``from module import name``."""
    loaded = plain(frame, module)
    if isinstance(loaded, types.ModuleType) and not _may_have(loaded, name):
        refuse("WOULD_RAISE", f"from {loaded.__name__} import {name}")
    return load_attribute(frame, module, name)


def _is_found(name: str) -> bool:
    """Whether there is a file of a module, or of the outermost package around it that is not loaded."""
    path = None
    for k, _ in enumerate(parts := name.split("."), 1):
        outer = ".".join(parts[:k])
        if outer not in sys.modules:
            return importlib.machinery.PathFinder.find_spec(outer, path) is not None
        path = getattr(sys.modules[outer], "__path__", None)
    return False


def _may_have(module: types.ModuleType, name: str) -> bool:
    return name in vars(module) or "__getattr__" in vars(module) or type(module) is not types.ModuleType


def environ_entry(frame: Frame, name: Any) -> Value | None:
    """A variable of the environment, guarded; None where it is not set."""
    data: Any = os.environ._data  # type: ignore[attr-defined]
    key = os.environ.encodekey(plain(frame, name))  # type: ignore[attr-defined]
    owner = DictEntry(vars(os), "environ", "os")
    frame.ex.guards.require(Is(owner, os.environ, called="the environment"))
    frame.ex.guards.require(Is(Attribute(owner, "_data"), data, called="the same dict"))
    if key not in data:
        frame.ex.guards.require(NoKey(Attribute(owner, "_data"), key))
        return None
    frame.ex.guards.require(Equal(Key(Attribute(owner, "_data"), key), data[key]))
    return Const(os.environ[plain(frame, name)])


@meaning(os.getenv)
def _getenv(frame: Frame, name: Any, default: Any = Const(None)) -> Value:
    found = environ_entry(frame, name)
    return frame.ex.resolve(default) if found is None else found


@meaning(type(os.environ).__getitem__)
def _environ_item(frame: Frame, owner: Any, name: Any) -> Value:
    found = environ_entry(frame, name)
    return found if found is not None else throw(KeyError(plain(frame, name)))
