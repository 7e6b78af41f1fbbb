"""An unpickler that makes data and runs no code: for ``weights_only=True``.

It knows the opcodes that make values, and calls nothing but the makers of `allowed.py` and what users have allowed.  Counts that a
pickle gives are compared with what is left of it before memory is asked for.
"""

from __future__ import annotations

import pickle
import pickletools
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from pickle import UnpicklingError
from struct import Struct
from typing import Any

from dynagraph.torch.core.dtypes import Size
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.serialization import allowed
from dynagraph.torch.serialization.errors import LoadError

_INT32, _UINT16, _UINT32, _UINT64, _DOUBLE = Struct("<i"), Struct("<H"), Struct("<I"), Struct("<Q"), Struct(">d")
_DEEPEST_KEY = 100  # hashing nested tuples is recursive in C
_MAPPINGS = (dict, OrderedDict, Counter, defaultdict)
_COPIED = (str, bytes, bytearray, list, tuple, set, frozenset, dict)
_COPIES = 32  # times the size of a pickle
_MARK: Any = object()
Operation = Callable[["Unpickler"], None]
_OPERATIONS: dict[int, Operation] = {}


def _opcode(*codes: bytes) -> Callable[[Operation], Operation]:
    def declared(operation: Operation) -> Operation:
        for code in codes:
            _OPERATIONS[code[0]] = operation
        return operation

    return declared


class Unpickler:
    """Reads one pickle out of bytes, from a place on; `position` is behind it afterwards.

    `persistent_load` makes storages of what stands for them.  `name`: of the file, for errors.
    """

    def __init__(
        self, data: Any, persistent_load: Callable[[Any], Any], *, name: str = "pickle", position: int = 0, encoding: str = "utf-8"
    ):  # fmt: skip
        self.data, self.position, self.name, self.encoding = data, position, name, encoding
        self.persistent_load = persistent_load
        self.handed_on = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        """The object."""
        data, operations = self.data, _OPERATIONS
        try:
            while True:
                code = data[self.position]
                self.position += 1
                if code == 46:  # STOP
                    return self.pop()
                operations[code](self)
        except KeyError as error:
            if error.args and error.args[0] in range(256) and error.args[0] not in operations:
                raise LoadError(
                    f"{self.name}: Unsupported operand {error.args[0]} at {self.position - 1}: not a pickle of data"
                ) from None
            raise LoadError(f"{self.name}: not a whole pickle: {error!r} at {self.position}") from None
        except LoadError as error:
            raise LoadError(f"{self.name}: {error}") from None
        except (IndexError, ValueError, TypeError, OverflowError, AttributeError, AssertionError, MemoryError) as error:
            raise LoadError(
                f"{self.name}: not a whole pickle of data: {type(error).__name__}: {error} (at {self.position})"
            ) from error

    # -- what is read --
    def take(self, count: int) -> bytes:
        """So many bytes more."""
        begin, end = self.position, self.position + count
        if end > len(self.data):
            raise LoadError(f"{count} bytes are wanted at {begin}, and the pickle has {len(self.data)}: it is cut off or damaged")
        self.position = end
        return bytes(self.data[begin:end])

    def number(self, form: Struct) -> Any:
        """A number in a form."""
        return form.unpack(self.take(form.size))[0]

    def line(self) -> str:
        """The text up to the end of a line."""
        found = bytes(self.data[self.position : self.position + 1000]).partition(b"\n")
        if not found[1]:
            raise LoadError(f"a line without an end at {self.position}")
        self.position += len(found[0]) + 1
        return found[0].decode()

    def hand_on(self, values: tuple[Any, ...]) -> None:
        """Count what calls copy: pickles of data do not have the same large value copied again and again."""
        self.handed_on += sum(len(v) for v in values if type(v) in _COPIED)
        if self.handed_on > _COPIES * len(self.data) + 10_000:
            raise LoadError("its calls would copy far more than there is in it")

    def pop(self) -> Any:
        """The last value; what marks a place is none."""
        value = self.stack.pop()
        if value is _MARK:
            raise LoadError("a value is wanted where a mark is")
        return value

    def popped_to_mark(self) -> list[Any]:
        """The values behind the last mark."""
        stack = self.stack
        for place in range(len(stack) - 1, -1, -1):
            if stack[place] is _MARK:
                found = stack[place + 1 :]
                del stack[place:]
                return found
        raise LoadError("a mark is missing")

    @property
    def top(self) -> Any:
        value = self.stack[-1]
        if value is _MARK:
            raise LoadError("a value is wanted where a mark is")
        return value


def modern(module: str, name: str) -> tuple[str, str]:
    """The module and name of today for those of Python 2, which protocol 2 has."""
    return NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))


def find_allowed(module: str, name: str) -> Any:
    """What a file names; UnpicklingError where it is not allowed, with what to do."""
    full = f"{module}.{name}"
    if module in allowed.NEVER or full in allowed.NEVER:
        raise UnpicklingError(f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked.")
    try:
        return allowed.by_name(full)
    except LookupError:
        short = full.removeprefix("builtins.")
        raise UnpicklingError(
            f"Unsupported global: GLOBAL {short} was not an allowed global by default. Please use "
            f"`torch.serialization.add_safe_globals([{short}])` or the `torch.serialization.safe_globals([{short}])` context "
            f"manager "
            "to allowlist this global if you trust this class/function."
        ) from None


def _hashable(key: Any, depth: int = 0) -> Any:
    """A key, which is no tower of tuples."""
    if isinstance(key, (tuple, frozenset)):
        if depth > _DEEPEST_KEY:
            raise LoadError("a key is nested too deeply")
        for item in key:
            if isinstance(item, (tuple, frozenset)):
                _hashable(item, depth + 1)
    return key


# -- numbers and texts ------------------------------------------------------------------------------------------------


def _constants() -> None:
    values: dict[bytes, Callable[[], Any]] = {
        pickle.NONE: lambda: None, pickle.NEWTRUE: lambda: True, pickle.NEWFALSE: lambda: False, pickle.EMPTY_TUPLE: tuple,
        pickle.EMPTY_LIST: list, pickle.EMPTY_DICT: dict, pickle.EMPTY_SET: set, pickle.MARK: lambda: _MARK,
    }  # fmt: skip
    for code, make in values.items():
        _opcode(code)(lambda self, make=make: self.stack.append(make()))  # type: ignore[misc]
    forms = {pickle.BININT: _INT32, pickle.BININT2: _UINT16, pickle.BINFLOAT: _DOUBLE}
    for code, form in forms.items():
        _opcode(code)(lambda self, form=form: self.stack.append(self.number(form)))  # type: ignore[misc]
    counts: dict[bytes, Callable[[Unpickler], int]] = {
        pickle.SHORT_BINUNICODE: lambda self: self.take(1)[0], pickle.BINUNICODE: lambda self: self.number(_UINT32),
        pickle.BINUNICODE8: lambda self: self.number(_UINT64), pickle.SHORT_BINBYTES: lambda self: self.take(1)[0],
        pickle.BINBYTES: lambda self: self.number(_UINT32), pickle.BINBYTES8: lambda self: self.number(_UINT64),
        pickle.BYTEARRAY8: lambda self: self.number(_UINT64), pickle.SHORT_BINSTRING: lambda self: self.take(1)[0],
        pickle.BINSTRING: lambda self: self.number(_UINT32), pickle.LONG1: lambda self: self.take(1)[0],
        pickle.LONG4: lambda self: self.number(_UINT32),
    }  # fmt: skip
    texts = (pickle.SHORT_BINUNICODE, pickle.BINUNICODE, pickle.BINUNICODE8)
    for code, count in counts.items():
        if code in texts:
            made: Callable[[Unpickler, bytes], Any] = lambda self, data: data.decode("utf-8", "surrogatepass")  # noqa: E731
        elif code in (pickle.SHORT_BINSTRING, pickle.BINSTRING):
            made = lambda self, data: data if self.encoding == "bytes" else data.decode(self.encoding)  # noqa: E731
        elif code in (pickle.LONG1, pickle.LONG4):
            made = lambda self, data: int.from_bytes(data, "little", signed=True)  # noqa: E731
        else:
            made = (lambda self, data: bytearray(data)) if code == pickle.BYTEARRAY8 else (lambda self, data: data)
        _opcode(code)(lambda self, count=count, made=made: self.stack.append(made(self, self.take(count(self)))))  # type: ignore[misc]


_constants()


@_opcode(pickle.BININT1)
def _byte(self: Unpickler) -> None:
    self.stack.append(self.data[self.position])
    self.position += 1


# -- containers -------------------------------------------------------------------------------------------------------


@_opcode(pickle.TUPLE)
def _tuple(self: Unpickler) -> None:
    self.stack.append(tuple(self.popped_to_mark()))


@_opcode(pickle.TUPLE1)
def _tuple1(self: Unpickler) -> None:
    self.stack.append((self.pop(),))


@_opcode(pickle.TUPLE2)
def _tuple2(self: Unpickler) -> None:
    second, first = self.pop(), self.pop()
    self.stack.append((first, second))


@_opcode(pickle.TUPLE3)
def _tuple3(self: Unpickler) -> None:
    third, second, first = self.pop(), self.pop(), self.pop()
    self.stack.append((first, second, third))


@_opcode(pickle.FROZENSET)
def _frozenset(self: Unpickler) -> None:
    self.stack.append(frozenset(map(_hashable, self.popped_to_mark())))


def _extended(self: Unpickler, items: list[Any]) -> None:
    target = self.top
    if type(target) is not list:
        raise LoadError(f"Can only append to lists, but got {type(target)}")
    target.extend(items)


@_opcode(pickle.APPEND)
def _append(self: Unpickler) -> None:
    _extended(self, [self.pop()])


@_opcode(pickle.APPENDS)
def _appends(self: Unpickler) -> None:
    _extended(self, self.popped_to_mark())


@_opcode(pickle.ADDITEMS)
def _additems(self: Unpickler) -> None:
    items = self.popped_to_mark()
    if type(self.top) is not set:
        raise LoadError(f"Can only add to sets, but got {type(self.top)}")
    self.top.update(map(_hashable, items))


def _stored(self: Unpickler, items: Iterator[Any]) -> None:
    target = self.top
    if type(target) not in _MAPPINGS:
        raise LoadError(f"Can only set items of dict, OrderedDict, Counter and defaultdict, but got {type(target)}")
    for key, value in zip(items, items):
        target[_hashable(key)] = value


@_opcode(pickle.SETITEM)
def _setitem(self: Unpickler) -> None:
    value, key = self.pop(), self.pop()
    _stored(self, iter((key, value)))


@_opcode(pickle.SETITEMS)
def _setitems(self: Unpickler) -> None:
    items = self.popped_to_mark()
    if len(items) % 2:
        raise LoadError("a key without a value")
    _stored(self, iter(items))


# -- the stack and the memo -------------------------------------------------------------------------------------------


@_opcode(pickle.POP)
def _drop(self: Unpickler) -> None:
    self.stack.pop()


@_opcode(pickle.POP_MARK)
def _drop_to_mark(self: Unpickler) -> None:
    self.popped_to_mark()


@_opcode(pickle.DUP)
def _dup(self: Unpickler) -> None:
    self.stack.append(self.top)


@_opcode(pickle.BINPUT)
def _put(self: Unpickler) -> None:
    self.memo[self.data[self.position]] = self.top
    self.position += 1


@_opcode(pickle.LONG_BINPUT)
def _long_put(self: Unpickler) -> None:
    self.memo[self.number(_UINT32)] = self.top


@_opcode(pickle.MEMOIZE)
def _memoize(self: Unpickler) -> None:
    self.memo[len(self.memo)] = self.top


def _remembered(self: Unpickler, index: int) -> None:
    if index not in self.memo:
        raise LoadError(f"value {index} is asked for before it was made")
    self.stack.append(self.memo[index])


@_opcode(pickle.BINGET)
def _get(self: Unpickler) -> None:
    _remembered(self, self.take(1)[0])


@_opcode(pickle.LONG_BINGET)
def _long_get(self: Unpickler) -> None:
    _remembered(self, self.number(_UINT32))


@_opcode(pickle.PROTO)
def _proto(self: Unpickler) -> None:
    if self.take(1)[0] > pickle.HIGHEST_PROTOCOL:
        raise LoadError(f"a pickle of protocol {self.data[self.position - 1]}, which is not known")


@_opcode(pickle.FRAME)
def _frame(self: Unpickler) -> None:
    self.number(_UINT64)


# -- globals, and what is made of them --------------------------------------------------------------------------------


def _named(self: Unpickler, module: Any, name: Any) -> None:
    if type(module) is not str or type(name) is not str:
        raise LoadError("a global is named by something that is no text")
    self.stack.append(find_allowed(*modern(module, name)))


@_opcode(pickle.GLOBAL)
def _global(self: Unpickler) -> None:
    module = self.line()
    _named(self, module, self.line())


@_opcode(pickle.STACK_GLOBAL)
def _stack_global(self: Unpickler) -> None:
    name, module = self.pop(), self.pop()
    _named(self, module, name)


def _called(self: Unpickler, kind: Any, args: Any, kwargs: Any = None) -> Any:
    if type(args) not in (tuple, Size) or (kwargs is not None and type(kwargs) is not dict):
        raise LoadError(f"the arguments of a call are {type(args).__name__}, no tuple")
    self.hand_on(args)
    return allowed.maker_of(kind), args, kwargs or {}


@_opcode(pickle.REDUCE)
def _reduce(self: Unpickler) -> None:
    args, function = self.pop(), self.pop()
    make, args, _ = _called(self, function, args)
    self.stack.append(make(*args))


def _new(self: Unpickler, kind: Any, args: Any, kwargs: Any) -> None:
    make, args, kwargs = _called(self, kind, args, kwargs)
    if make is kind and isinstance(kind, type) and kind is not Parameter:  # a class that users have allowed
        self.stack.append(kind.__new__(kind, *args, **kwargs))
    else:
        self.stack.append(make(*args, **kwargs))


@_opcode(pickle.NEWOBJ)
def _newobj(self: Unpickler) -> None:
    args, kind = self.pop(), self.pop()
    _new(self, kind, args, None)


@_opcode(pickle.NEWOBJ_EX)
def _newobj_ex(self: Unpickler) -> None:
    kwargs, args, kind = self.pop(), self.pop(), self.pop()
    _new(self, kind, args, kwargs)


@_opcode(pickle.BUILD)
def _build(self: Unpickler) -> None:
    state, value = self.pop(), self.top
    known = allowed.by_object(type(value))
    if known is None or (known.build is None and known.make is not known.value):
        raise UnpicklingError(
            f"Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, but got {type(value)}"
        )
    if isinstance(state, tuple):
        self.hand_on(state)
    if known.build is not None:
        known.build(value, state)
    elif hasattr(value, "__setstate__"):
        value.__setstate__(state)
    else:
        own, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        if own:
            value.__dict__.update(own)
        for name, item in (slots or {}).items():
            setattr(value, name, item)


@_opcode(pickle.BINPERSID)
def _binpersid(self: Unpickler) -> None:
    given = self.pop()
    kind = given[0] if type(given) is tuple and given else given
    if type(given) is not int and kind not in ("storage", b"storage"):
        raise LoadError(f"Only persistent_load of storage is allowed, but got {str(kind)[:100]}")
    self.stack.append(self.persistent_load(given))


def named_globals(data: bytes) -> set[str]:
    """The globals that a pickle names; nothing is made of them."""
    found: set[str] = set()
    texts: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "GLOBAL":
                module, _, name = str(argument).partition(" ")
                found.add(".".join(modern(module, name)))
            elif opcode.name == "STACK_GLOBAL":
                found.add(".".join(texts[-2:]))
            elif "UNICODE" in opcode.name:
                texts.append(argument)
    except ValueError as error:
        raise LoadError(f"not a whole pickle: {error}") from None
    return found


__all__ = ["Unpickler", "find_allowed", "named_globals"]
