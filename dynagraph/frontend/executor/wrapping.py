"""Wrap Python objects as symbolic values, and guard what the captured code looks at.

Nothing is guarded before it is looked at: arguments, items and attributes are wrapped lazily.
"""

from __future__ import annotations

import builtins
import collections
import enum
import gc
import types
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.array_libraries import NUMPY, ArrayLibrary, library_of
from dynagraph.doors import cupy as cupy_door
from dynagraph.doors.numpy import lookup
from dynagraph.doors.numpy import method as method_of_arrays
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.numpy_source import is_constant, is_own, is_trusted, is_unchanging, is_unchanging_here, is_value
from dynagraph.frontend.executor.state import CaptureState, Lazy
from dynagraph.frontend.guards.guards import (
    Elements,
    Equal,
    HasType,
    HasValue,
    InputArray,
    InputDeviceArray,
    InputScalar,
    Is,
    IsNot,
    Keys,
    Length,
    MaxLength,
    NoGlobal,
    NotSame,
    Order,
    Same,
    SymbolicInteger,
    SymbolicSize,
    describe_value,
)
from dynagraph.frontend.guards.mutable_classes import HEAP_TYPE
from dynagraph.frontend.guards.profile import LARGEST
from dynagraph.frontend.guards.sources import (
    Attribute,
    Contents,
    DictEntry,
    Field,
    Item,
    Key,
    Known,
    Owner,
    Source,
    Trusted,
)
from dynagraph.frontend.guards.sources import Cell as CellSource
from dynagraph.frontend.kinds.values import (
    DELETED,
    NULL,
    Array,
    Cell,
    Const,
    Dict,
    Function,
    HostArray,
    Method,
    Number,
    Object,
    Sequence,
    Set,
    Slice,
    Taped,
    Value,
    source_of,
)
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Meta
from dynagraph.ir.shapes import Dim

SINGLETONS = (None, True, False, Ellipsis, NotImplemented)
VALUES = (int, float, complex, str, bytes)  # constants that are guarded by value
IDENTITIES = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    np.ufunc,
    _dispatch.CompiledFunction,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    type(np.where),
    types.CodeType,
)
NAMED_METHODS = (set, collections.deque, np.ndarray, np.generic, *VALUES)  # whose methods are followed by their names
KEYS = (str, int, bytes, bool, float, type(None), type)
OF_NAMESPACES = ("__name__", "__doc__", "__package__", "__loader__", "__spec__")  # what every module holds
DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
MRO_OF = vars(type)["__mro__"].__get__
MUTABLE = (Array, Sequence, Dict, Set, Object, Function)  # one value for one object
IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: of classes written in C, heap types too
MAX_SYMBOLS = 60
MAX_DIMS = 8  # of an array: DG_MAX_DIMS of the dispatcher


def wrap(ex: CaptureState, obj: Any, source: Source) -> Value:
    """The value of an object that the program read from `source`, guarded as far as it is known from now on."""
    found = ex.wrapped.get(source)
    if found is None:
        found = ex.wrapped[source] = _shared(ex, obj, source)
        ex.objects[source] = obj
    return found


def _shared(ex: CaptureState, obj: Any, source: Source) -> Value:
    """One value for a mutable object, by however many ways it is reached."""
    known = ex.by_identity.get(id(obj))
    if known is not None:
        ex.guards.require(Same(source, source_of(known)))
        return known
    value = _wrap(ex, obj, source)
    if isinstance(value, MUTABLE) and value.source is not None and type(obj) is not tuple and not issubclass(type(obj), np.generic):
        ex.by_identity[id(obj)] = value
    return value


def _wrap(ex: CaptureState, obj: Any, source: Source) -> Value:
    kind = type(obj)
    if source.is_trusted and is_value(obj):
        return ex.constant(obj)
    if any(obj is s for s in SINGLETONS):
        ex.guards.require(Is(source, obj, called=repr(obj)))
        return Const(obj, source)
    if kind is int or kind is float or kind is complex:
        return _number(ex, obj, source)
    if kind in VALUES:
        ex.guards.require(Equal(source, obj))
        return Const(obj, source)
    if issubclass(kind, Taped):
        raise Break("UNSUPPORTED_INPUT", None, f"{source} is being differentiated as plain Python")
    library = library_of(kind)
    if library is NUMPY and source.is_trusted and (ex.hosting or ex.library is not NUMPY):
        return HostArray(obj.copy())  # a table of the package's, in a program of CuPy's arrays
    if library is not None:
        return _array_input(ex, obj, source, library)
    if issubclass(kind, np.ndarray):  # isinstance would ask the object
        raise Break("UNSUPPORTED_INPUT", None, f"{source} is {describe_value(obj)}, a subclass of np.ndarray")
    if issubclass(kind, np.generic):
        return _scalar_input(ex, obj, source)
    if kind in (tuple, list, collections.deque) or is_named_tuple(kind):
        return _sequence(ex, obj, source)
    if kind in DICTS:
        return _dict(ex, obj, source)
    if kind in (set, frozenset):
        return _set(ex, obj, source)
    if kind is range:
        return _range(ex, obj, source)
    if kind is slice:
        ex.guards.require(HasType(source, slice))
        parts = [Lazy(ex, getattr(obj, name), Attribute(source, name)) for name in ("start", "stop", "step")]
        return Slice((parts[0], parts[1], parts[2]), source)
    if _is_of_cupy(obj):
        ex.guards.require(Is(source, obj, called=_short(obj)))
        return Const(obj, source)
    if kind is types.FunctionType:
        return function(ex, obj, source)
    if issubclass(kind, types.BuiltinFunctionType) and (descriptor := _bound_from(obj)) is not None:
        owner = wrap(ex, obj.__self__, Owner(source, descriptor))
        return Method(obj.__name__ if isinstance(obj.__self__, NAMED_METHODS) else Const(descriptor), owner)
    if issubclass(kind, types.ModuleType) and kind is not types.ModuleType:
        return Object(kind, obj, source)  # its class may compute attributes
    if issubclass(kind, type) and MRO_OF(obj) is None:
        refuse("METACLASS", "a class that is being made")
    if issubclass(kind, (*IDENTITIES, np.dtype)) or is_cython_function(kind) or lookup(obj) is not None:
        ex.guards.require(Is(source, obj, called=_short(obj)))
        return Const(obj, source)
    if is_container(kind):
        return _of_subclass(ex, obj, source)
    return Object(kind, obj, source)


def _bound_from(method: types.BuiltinMethodType) -> types.MethodDescriptorType | None:
    """The descriptor of a method written in C; None for other functions, which are known by their identity.  The method is another
    object each time it is read, and which class of several gave it only the descriptor tells: super() reads those of bases.
    """
    owner, name = method.__self__, method.__name__
    if isinstance(owner, types.ModuleType) or lookup(method) is not None:
        return None
    if isinstance(owner, (np.ndarray, np.generic)) and method_of_arrays(name) is None:
        return None
    found = [vars(k)[name] for k in type(owner).__mro__ if name in vars(k)]
    same = [d for d in found if isinstance(d, types.MethodDescriptorType) and d.__get__(owner, type(owner)) == method]
    return same[0] if same else None


def _is_of_cupy(obj: Any) -> bool:
    """Whether an object is a function of CuPy's whose meaning is known: as NumPy's, these are taken as unchanging."""
    own = cupy_door.names()
    return own is not None and own.name_of(obj) is not None


def is_cython_function(kind: type) -> bool:
    """Functions of extension modules that Cython made: each has a class for them, which says its version."""
    return kind.__name__ == "cython_function_or_method" and base_in_c(kind) is kind


def is_container(kind: type) -> bool:
    """Whether a class is a subclass of a list, tuple or dict, written in Python."""
    base = base_in_c(kind)
    if base is kind or base not in (list, tuple, dict, collections.OrderedDict):
        return False
    return not issubclass(kind, enum.Enum) and not hasattr(kind, "n_sequence_fields")


def base_in_c(kind: type) -> type:
    """The nearest class in the MRO that is written in C."""
    return next((k for k in kind.__mro__ if not k.__flags__ & HEAP_TYPE or k.__flags__ & IMMUTABLE_TYPE), object)


def _of_subclass(ex: CaptureState, obj: Any, source: Source) -> Any:
    """What an instance of such a class holds, as a plain container: what the class redefines is asked by those who use it."""
    kind = type(obj)
    ex.guards.instance(source, kind)
    if issubclass(kind, dict):
        ordered = issubclass(kind, collections.OrderedDict)
        held = dict(collections.OrderedDict.items(obj) if ordered else dict.items(obj))
        return Dict({}, source, held, kind, complete=False)
    base = tuple if issubclass(kind, tuple) else list
    plain = list(base.__iter__(obj))
    if base is tuple:
        ex.guards.require(Length(source, len(plain)))
    items = [Lazy(ex, item, Item(source, k)) for k, item in enumerate(plain)]
    return Sequence(kind, items, source, plain, sized=base is tuple)


def _number(ex: CaptureState, obj: Any, source: Source) -> Value:
    if type(obj) is int and ex.profile.symbolic_number(source, obj) and len(ex.env.values) < MAX_SYMBOLS:
        symbol = len(ex.env.values)
        ex.guards.require(SymbolicInteger(source, symbol))
        ex.guards.require(InputScalar(source, input_slot(ex), int, called="an int"))
        ex.graph.placeholder(source.label, Meta(dtypes.int64, ()), symbol=f"s{symbol}")
        number = ex.env.symbol(obj, number=True)
        ex.integers[f"s{symbol}"] = source
        return Const(number if number < LARGEST else obj, source)  # the comparison is a guard
    if type(obj) in (float, complex) and ex.profile.symbolic_number(source, obj):
        ex.guards.require(InputScalar(source, input_slot(ex), type(obj), called=f"a {type(obj).__name__}"))
        dtype = dtypes.float64 if type(obj) is float else dtypes.complex128
        node = ex.graph.placeholder(source.label, Meta(dtype, ()))
        ex.symbolic_floats.add(source)
        return Number(node, source, now=obj if type(obj) is float else None)
    ex.guards.require(Equal(source, obj))
    return Const(obj, source)


def is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and kind.__bases__ == (tuple,) and hasattr(kind, "_fields")


# -- containers -----------------------------------------------------------------------------------------------------------


def _sequence(ex: CaptureState, obj: Any, source: Source) -> Sequence:
    kind = type(obj)
    ex.guards.require(HasType(source, kind))
    if kind is tuple:
        ex.guards.require(Length(source, len(obj)))
    elif kind is collections.deque:
        ex.guards.require(MaxLength(source, obj.maxlen))
    names = getattr(kind, "_fields", None)
    places = [Item(source, k) if names is None else Attribute(source, names[k]) for k in range(len(obj))]
    items = [Lazy(ex, item, place) for item, place in zip(obj, places)]
    return Sequence(kind, items, source, obj, sized=isinstance(obj, tuple), maxlen=getattr(obj, "maxlen", None))


def guard_length(ex: CaptureState, value: Sequence) -> None:
    """From now on the program depends on how long a list of the caller's is."""
    if not value.sized:
        value.sized = True
        ex.guards.require(Length(source_of(value), len(value.object)))


def _dict(ex: CaptureState, obj: Any, source: Source) -> Dict:
    kind = type(obj)
    if all(name in obj for name in OF_NAMESPACES):
        refuse("SIDE_EFFECT", f"{source} is the namespace of a module")
    ex.guards.require(HasType(source, kind))
    factory = Lazy(ex, obj.default_factory, Attribute(source, "default_factory")) if kind is collections.defaultdict else None
    return Dict({}, source, obj, kind, complete=False, factory=factory)


def _is_plain_key(key: Any) -> bool:
    """Whether two such keys are equal says nothing but their values, or of classes their identity."""
    kind = type(key)
    return kind in KEYS or (isinstance(key, type) and kind.__eq__ is type.__eq__ and kind.__hash__ is type.__hash__)


def behind(ex: CaptureState, value: Any) -> Any:
    """The dict that a read-only view (types.MappingProxyType) of the caller's shows; any other value as it is."""
    if not (isinstance(value, Object) and value.kind is types.MappingProxyType and value.source is not None):
        return value
    mapping = gc.get_referents(value.value)[0]
    if type(mapping) not in DICTS or "__module__" in mapping:  # of a class
        return value
    ex.guards.require(HasType(value.source, value.kind))
    return wrap(ex, mapping, Field(value.source, value.kind, object.__basicsize__))


def complete(ex: CaptureState, value: Dict) -> dict[Any, Any]:
    """All entries of a dict in order, guarded where they are the caller's."""
    if not value.complete:
        assert value.object is not None and value.source is not None
        keys = tuple(value.object)
        if not value.source.is_trusted and not all(map(_is_plain_key, keys)):
            refuse("UNSUPPORTED_VALUE", f"{value.source} has keys that are neither strings nor numbers nor classes")
        ex.guards.require(Keys(value.source, keys))
        known = value.items
        original = {k: known[k] if k in known else Lazy(ex, value.object[k], Key(value.source, k)) for k in keys}
        for key, item in known.items():
            if item is DELETED or key in value.added_again:
                original.pop(key, None)
            if item is DELETED:
                continue
            if key in value.added_again or key not in original:
                original[key] = item
        value.items, value.complete = original, True
    return value.items


def _set(ex: CaptureState, obj: Any, source: Source) -> Set:
    if not source.is_trusted and not all(map(_is_plain_key, obj)):
        refuse("UNSUPPORTED_INPUT", f"{source} is a set of things that are neither strings nor numbers nor classes")
    ex.guards.require(HasType(source, type(obj)))
    ex.guards.require(Elements(source, frozenset(obj)))
    return Set(type(obj), type(obj)(obj), source)


def guard_order(ex: CaptureState, value: Set) -> None:
    """From now on the program depends on the order of a set, and so on that of the caller's sets that it comes from."""
    if any(type(item) not in (int, bool) for item in value.items):
        ex.of_process = "the order of a set"
    for base in (value, *value.bases):
        if base.source is not None and not base.ordered:
            base.ordered = True
            obj = ex.objects[base.source]
            order = tuple(obj)
            if list(type(obj)(obj)) != list(order):
                refuse("UNSUPPORTED_VALUE", f"the order of {base.source}, which a copy does not have")
            ex.guards.require(Order(base.source, order))


def _range(ex: CaptureState, obj: range, source: Source) -> Const:
    ex.guards.require(HasType(source, range))
    for name in ("start", "stop", "step"):
        ex.guards.require(Equal(Attribute(source, name), getattr(obj, name)))
    return Const(obj, source)


# -- arrays -----------------------------------------------------------------------------------------------------------------


def _array_input(ex: CaptureState, array: Any, source: Source, library: ArrayLibrary) -> Array:
    if library.refusal:
        raise Break("UNSUPPORTED_INPUT", None, library.refusal)
    device = library.device_of(array)
    ex.claim(library, device)
    dtype = dtypes.from_numpy(array.dtype)
    # np.longlong equals np.int64 where a long has 64 bits, yet its scalars have another type
    if dtype is None or array.dtype.metadata or array.dtype.num != dtype.numpy.num:
        raise Break("UNSUPPORTED_INPUT", None, f"{source} has dtype {array.dtype}")
    if not library.is_aligned(array) or array.ndim > MAX_DIMS:
        raise Break("UNSUPPORTED_INPUT", None, f"{source} is not aligned, or has more than {MAX_DIMS} dimensions")
    ex.memories.check_new_input(array, source)
    slot = input_slot(ex)
    contiguous = array.flags.c_contiguous
    if not contiguous and any(s % array.itemsize for s in array.strides):
        raise Break("UNSUPPORTED_INPUT", None, f"{source} has strides that are not multiples of its item size")
    strides = None if contiguous else tuple(s // array.itemsize for s in array.strides)
    shape, guarded = _dims(ex, source, array, slot, contiguous)
    writeable = library.is_writeable(array)
    described = describe_value(array) + ("" if writeable else " read-only")
    if library is NUMPY:
        ex.guards.require(InputArray(source, slot, array.dtype, array.ndim, guarded, strides, writeable, called=described))
    else:
        kind = library.array_type
        ex.guards.require(InputDeviceArray(source, slot, kind, array.dtype, array.ndim, guarded, strides, device, called=described))
    node = ex.graph.placeholder(source.label, Meta(dtype, shape, strides))
    return ex.own(Array(node, source=source))


def input_slot(ex: CaptureState) -> int:
    if ex.n_inputs >= _dispatch.MAX_ARRAYS:
        raise Break("TOO_MANY_VALUES", None, f"more than {_dispatch.MAX_ARRAYS} arrays")
    ex.n_inputs += 1
    return ex.n_inputs - 1


def _dims(
    ex: CaptureState, source: Source, array: Any, slot: int, contiguous: bool
) -> tuple[tuple[Dim, ...], tuple[int | None, ...]]:
    if not contiguous:
        return array.shape, array.shape
    symbolic = ex.profile.symbolic_axes(source, array)
    shape: list[Dim] = []
    guarded: list[int | None] = []
    for axis, size in enumerate(array.shape):
        if not symbolic[axis] or len(ex.env.values) >= MAX_SYMBOLS:
            shape.append(size)
            guarded.append(size)
        else:
            ex.sizes.append(SymbolicSize(len(ex.env.values), slot, axis))
            shape.append(ex.env.symbol(size))
            guarded.append(None)
    return tuple(shape), tuple(guarded)


def _scalar_input(ex: CaptureState, scalar: np.generic, source: Source) -> Array:
    dtype = dtypes.from_numpy(scalar.dtype)
    if dtype is None or type(scalar) is not dtype.numpy.type:
        raise Break("UNSUPPORTED_INPUT", None, f"{source} is a {type(scalar).__name__}")
    ex.guards.require(InputScalar(source, input_slot(ex), type(scalar), called=f"a np.{type(scalar).__name__}"))
    node = ex.graph.placeholder(source.label, Meta(dtype, ()))
    ex.scalars.add(node)
    return ex.own(Array(node, is_scalar=True, source=source))


# -- instances of subclasses of int, float, str and their like ---------------------------------------------------------------------

EXACT: dict[type, Any] = {
    int: int.__pos__, float: float.__pos__, complex: complex.__pos__, str: str.__str__, bytes: bytes.__bytes__,
}  # fmt: skip
OF_ARRAYS = ("__array_ufunc__", "__array_priority__", "__array__", "__array_interface__", "__array_struct__")


def base_of_value(kind: type) -> type | None:
    """The built-in type that an immutable value's class extends, in Python; None of enums and other classes."""
    base = base_in_c(kind)
    return base if base in EXACT and base is not kind and not hasattr(kind, "__members__") else None


def acts_as_array(kind: type) -> bool:
    """Whether a class tells NumPy what its instances are in operators."""
    return any(name in vars(k) for k in kind.__mro__ for name in OF_ARRAYS)


def held_value(ex: CaptureState, value: Any) -> Const | None:
    """What an instance of such a class is as a plain number or text, guarded; None for anything else."""
    base = base_of_value(value.kind) if isinstance(value, Object) and value.source is not None else None
    if base is None:
        return None
    plain = EXACT[base](value.value)
    ex.guards.instance(value.source, value.kind)
    ex.guards.require(HasValue(value.source, plain))
    return Const(plain)


# -- functions and names ----------------------------------------------------------------------------------------------------


def function(ex: CaptureState, obj: types.FunctionType, source: Source) -> Function:
    """A function of the user's.  One of a namespace is guarded by identity, others by what they are made of: a lambda that is
    made anew at each call is the same program."""
    code = obj.__code__
    if is_own(obj.__globals__) and not source.is_trusted:
        ex.guards.require(Is(source, obj, called=f"the function {obj.__qualname__}"))
        source = Trusted(obj, obj.__qualname__)
    stays = isinstance(source, (DictEntry, Known, CellSource))
    if stays:
        ex.guards.require(Is(source, obj, called=f"the function {obj.__qualname__}"))
    else:
        ex.guards.require(HasType(source, types.FunctionType))
        ex.guards.require(Is(Attribute(source, "__globals__"), obj.__globals__, called="the same module's"))
    ex.guards.require(Is(Attribute(source, "__code__"), code, called="the same code"))
    return Function(
        code,
        obj.__globals__,
        obj.__qualname__,
        _defaults(ex, obj.__defaults__, Attribute(source, "__defaults__"), stays),
        _keyword_defaults(ex, obj.__kwdefaults__, Attribute(source, "__kwdefaults__"), stays),
        tuple(_cell_of(ex, obj, k, name, source, stays) for k, name in enumerate(code.co_freevars)),
        source,
        obj,
    )


def _defaults(ex: CaptureState, defaults: tuple | None, source: Source, stays: bool) -> tuple[Any, ...]:
    if defaults is None or stays:
        ex.guards.require(Is(source, defaults))
    else:
        ex.guards.require(HasType(source, tuple))
        ex.guards.require(Length(source, len(defaults)))
    return tuple(Lazy(ex, d, _of_default(d, Item(source, k))) for k, d in enumerate(defaults or ()))


def _keyword_defaults(ex: CaptureState, defaults: dict | None, source: Source, stays: bool) -> dict[str, Any]:
    if defaults is None or stays:
        ex.guards.require(Is(source, defaults))
    if defaults is not None:
        ex.guards.require(Keys(source, tuple(defaults)))
    return {k: Lazy(ex, d, _of_default(d, Key(source, k))) for k, d in (defaults or {}).items()}


def _of_default(default: Any, place: Source) -> Source:
    """Where a default is found: that of a function that is trusted stays, but may be an object that changes."""
    return Known(default, str(place)) if place.is_trusted and not is_constant(default) else place


def _cell_of(ex: CaptureState, obj: types.FunctionType, k: int, name: str, source: Source, stays: bool) -> Cell:
    cell = (obj.__closure__ or ())[k]
    if source.is_trusted and (not is_own(obj.__globals__) or is_constant(cell.cell_contents)):
        return cell_value(ex, cell, Trusted(cell.cell_contents, name))
    if stays or source.is_trusted:
        return cell_value(ex, cell, CellSource(cell, name))
    place = Item(Attribute(source, "__closure__"), k)
    return cell_value(ex, cell, Contents(place), place)


def cell_value(ex: CaptureState, real: types.CellType, source: Source, owner: Source | None = None) -> Cell:
    """One value for a real cell, by however many ways it is reached; `owner`: where it is found, if it is not a constant."""
    known = ex.cells.get(id(real))
    if known is None:
        known = ex.cells[id(real)] = Cell(source=source, real=real, owner=owner)
    else:
        guard_cells(ex, known, real, owner, True)
    return known


def guard_cells(ex: CaptureState, known: Cell, real: types.CellType, owner: Source | None, same: bool) -> None:
    """Guard that a cell found at `owner` is the known one, or that it is another."""
    if owner is not None and known.owner is not None:
        ex.guards.require((Same if same else NotSame)(known.owner, owner))
    elif owner is not None:
        ex.guards.require((Is if same else IsNot)(owner, known.real, called=f"the variable {known.source}"))
    elif known.owner is not None:
        ex.guards.require((Is if same else IsNot)(known.owner, real, called="the same variable"))


def class_function(ex: CaptureState, found: types.FunctionType, owner: type, name: str) -> Function:
    """A function that stands in a class whose version is guarded: its code and defaults may still be replaced."""
    known = Trusted if is_own(found.__globals__) else Known
    value = wrap(ex, found, known(found, f"{owner.__name__}.{name}"))
    assert isinstance(value, Function)
    return value


def load_global(ex: CaptureState, owner: dict[str, Any], name: str) -> Value:
    """A global of a function, or a builtin."""
    key = (id(owner), name)
    if key in ex.stored:
        return _load_global(ex, owner, name, ex.stored[key])
    found = ex.globals_read.get(key)
    if found is None:
        found = ex.globals_read[key] = _load_global(ex, owner, name, None)
    return found


def _load_global(ex: CaptureState, owner: dict[str, Any], name: str, stored: Any) -> Value:
    """`stored`: what the captured code has set it to."""
    if stored is not None and stored is not DELETED:
        return ex.resolve(stored)
    if name in owner and stored is not DELETED:
        return load_entry(ex, owner, name, "global", is_trusted(owner))
    if stored is not DELETED and not is_trusted(owner):
        ex.guards.require(NoGlobal(owner, name))
    scope = owner.get("__builtins__", builtins)
    entries = scope if isinstance(scope, dict) else vars(scope)
    if name not in entries:
        ex.guards.require(NoGlobal(entries, name))
        throw(NameError(f"name {name!r} is not defined"), name=Const(name))
    return wrap(ex, entries[name], DictEntry(entries, name, "builtin"))


def load_entry(ex: CaptureState, owner: dict[str, Any], name: str, kind: str, by_numpy: bool) -> Value:
    """What a namespace holds; `by_numpy`: to NumPy's own code its functions, classes, modules and values are constants."""
    found = owner[name]
    if by_numpy and is_own(owner) and not is_unchanging_here(owner, name):
        return wrap(ex, found, DictEntry(owner, name, kind))
    if by_numpy and is_value(found):
        return ex.constant(found)
    if by_numpy and (is_unchanging(found) or is_own(owner)):
        return wrap(ex, found, Trusted(found, name))
    return wrap(ex, found, DictEntry(owner, name, kind))


def load_cell(ex: CaptureState, cell: Cell, name: str = "") -> Value:
    if cell.source is not None and cell.value is NULL:
        try:
            cell.value = wrap(ex, cell.real.cell_contents, cell.source)
        except ValueError:
            raise Break("UNSUPPORTED_VALUE", None, f"{cell.source} is not set yet") from None
    if cell.value is NULL or cell.value is DELETED:
        throw(NameError(f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope"))
    return ex.resolve(cell.value)


def _short(obj: Any) -> str:
    text = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or repr(obj)
    return f"{'module ' if isinstance(obj, types.ModuleType) else ''}{text}"
