"""How what a program refers to is written to a file, and found again in another process.

Functions, classes, modules, and the objects that this package's modules hold go by name.  Beside the names of functions and classes
stand digests: of users' code, so that a program is not used once it was edited; of libraries, of where each function is defined, so
that it is not used where a process has replaced one.  Plain values, graphs and guards go by value.  Everything else is refused: an
object of the user's is another one in each process.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import io
import os
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.frontend.guards.guards import Guard, HasType, Is, UnchangedType
from dynagraph.frontend.guards.sources import Source
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.ops import OPS
from dynagraph.ir.shapes import SymInt
from dynagraph.location import Location

ATOMS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
PLAIN = frozenset({*ATOMS, frozenset, np.dtype, range, slice})
BY_VALUE = (
    "dynagraph.ir.",
    "dynagraph.frontend.guards.",
    "dynagraph.frontend.executor.state",
    "dynagraph.torch.core.joined",
    "dynagraph.driver.decorated",
    "dynagraph.backends.c.external_calls",
    "dynagraph.location",
)
PACKAGES = ("dynagraph", "numpy")  # whose code is the same as long as their versions are, as the standard library's is
OF_CLASS = ("fget", "fset", "fdel", "__func__")  # where descriptors of a class hold functions
MADE = "<locals>"  # in the names of what functions make
DISPATCHER = type(np.sum)  # of NumPy's functions that other classes may take over
NAMED = (DISPATCHER, np.ufunc, types.BuiltinFunctionType)  # functions in C, which are what their names say
IGNORED = ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__static_attributes__", "__firstlineno__")


class NotSaved(Exception):
    """Something that another process does not have; the text says what."""


class Stale(Exception):
    """Something is not there any more, or is not what it was."""


# -- digests ----------------------------------------------------------------------------------------------------------


def code_digest(code: types.CodeType) -> str:
    """The same for the same code in another process."""
    return hashlib.sha256("\0".join(_code_parts(code)).encode(errors="surrogatepass")).hexdigest()


def _code_parts(code: types.CodeType) -> Iterator[str]:
    yield repr((
        code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags, code.co_argcount,
        code.co_posonlyargcount, code.co_kwonlyargcount, code.co_filename, code.co_firstlineno, code.co_linetable, code.co_qualname,
        code.co_exceptiontable,
    ))  # fmt: skip
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_parts(constant)
        else:
            yield value_text(constant)


def value_text(value: Any) -> str:
    """A plain value as text; NotSaved for any other."""
    kind = type(value)
    if kind in ATOMS:
        return f"{kind.__name__} {value!r}"
    if kind is tuple:
        return f"({', '.join(map(value_text, value))})"
    if kind is frozenset:
        return f"{{{', '.join(sorted(map(value_text, value)))}}}"
    raise NotSaved(f"a value of type {kind.__name__}")


def function_digest(function: types.FunctionType) -> str:
    """Of its code and its defaults."""
    defaults = (function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).items()))
    return code_digest(function.__code__) + value_text(defaults)


_digests: weakref.WeakKeyDictionary[type, tuple[int, str]] = weakref.WeakKeyDictionary()  # with the classes' versions


def class_digest(cls: type) -> str:
    """Of all that a class and its bases define."""
    return " ".join(map(_own_digest, cls.__mro__))


def _own_digest(cls: type) -> str:
    """Of what a class itself defines: many have the same bases."""
    version = _dispatch.type_version(cls)
    known = _digests.get(cls)
    if known is not None and version and known[0] == version:
        return known[1]
    text = _library_member_text if is_of_library(cls) else _member_text
    parts = [f"{cls.__module__}.{cls.__qualname__}"]
    parts += [f"{name}={text(value)}" for name, value in vars(cls).items() if name not in IGNORED]
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
    _digests[cls] = version, digest
    return digest


def _member_text(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        return digest_of(value)
    if isinstance(value, (staticmethod, classmethod)):
        return type(value).__name__ + _member_text(value.__func__)
    if isinstance(value, property):
        return "property" + "".join("-" if f is None else _member_text(f) for f in (value.fget, value.fset, value.fdel))
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType, types.BuiltinFunctionType)):
        return str(type(value).__name__)
    return value_text(value)


def _library_member_text(value: Any) -> str:
    """Of what a library's class holds, which only somebody who replaces it changes."""
    try:
        return _member_text(value)
    except NotSaved:
        return f"{type(value).__module__}.{type(value).__qualname__}"


@functools.cache
def _is_library(name: str, file: str | None) -> bool:
    """Whether a module is of the standard library, of this package or of NumPy: users' modules may have any name."""
    top = name.partition(".")[0]
    if top in PACKAGES:
        home = os.path.dirname(str(sys.modules[top].__file__))
    elif top in sys.stdlib_module_names:
        if file is None:  # built in, or frozen
            return True
        home = os.path.dirname(os.__file__)
    else:
        return False
    return file is not None and file.startswith(home + os.sep) and "-packages" not in file[len(home) :]


def is_of_library(thing: Any) -> bool:
    """Whether a function or class is of a library that changes with its version only, which is part of a program's key."""
    name = thing.__globals__.get("__name__") if isinstance(thing, types.FunctionType) else getattr(thing, "__module__", None)
    module = sys.modules.get(str(name or "builtins"))
    return module is not None and _is_library(str(name or "builtins"), getattr(module, "__file__", None))


def _definition(function: types.FunctionType, depth: int = 2) -> str:
    """Where a library's function is defined, and those that its closure holds: decorators make many functions of one code."""
    code, closure = function.__code__, function.__closure__
    own = f"{function.__module__} {function.__qualname__} {code.co_qualname} {code.co_filename} {code.co_firstlineno}"
    if closure is None or not depth:
        return own
    held = [cell.cell_contents for cell in closure if cell != types.CellType()]
    return "(".join([own, *(_definition(each, depth - 1) for each in held if isinstance(each, types.FunctionType))])


def digest_of(thing: Any) -> str:
    """What has to be the same where a function or class is found."""
    if isinstance(thing, types.FunctionType):
        if not is_of_library(thing):
            return function_digest(thing)
        return _definition(thing)
    if isinstance(thing, type):  # the compiler's own parts are no classes of anybody's objects
        return "" if thing.__module__.startswith(BY_VALUE) else class_digest(thing)
    if isinstance(thing, NAMED):
        return f"{type(thing).__name__} {thing.__name__}"
    raise NotSaved(f"{thing!r}")


# -- names ------------------------------------------------------------------------------------------------------------


def _found(module: str, qualname: str) -> Any:
    found: Any = sys.modules[module]
    for name in qualname.split("."):
        found = found.__dict__[name] if isinstance(found, type) and name in found.__dict__ else getattr(found, name)
    return found


def _by_name(thing: Any) -> tuple[Any, ...] | None:
    """(module, qualname, attribute of the descriptor there) of a function or class, where its name leads to it."""
    module, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if isinstance(thing, np.ufunc):
        module, qualname = "numpy", thing.__name__
    try:
        found = _found(module or "builtins", str(qualname))
    except (KeyError, AttributeError):
        return None
    if found is thing:
        return module or "builtins", qualname, ""
    for attribute in OF_CLASS:
        if getattr(found, attribute, None) is thing:
            return module, qualname, attribute
    return None


class Holdings:
    """What the modules of this package hold: objects by identity -> (module, global) or (module, global, key).

    `functions`: those that stand elsewhere than their names say, such as lambdas of properties: as `_by_name` gives them.
    """

    def __init__(self) -> None:
        self.places: dict[int, tuple[str, ...]] = {}
        self.namespaces: dict[int, str] = {}
        for name, module in list(sys.modules.items()):
            namespace = getattr(module, "__dict__", None)
            if not isinstance(namespace, dict):
                continue
            self.namespaces.setdefault(id(namespace), name)
            if name.partition(".")[0] == "dynagraph":
                self._add(name, namespace)

    def _add(self, module: str, namespace: dict[str, Any]) -> None:
        for name, value in list(namespace.items()):
            if type(value) in ATOMS or isinstance(value, (types.ModuleType, types.FunctionType, type)):  # these have digests
                continue
            self.places.setdefault(id(value), (module, name))
            if type(value) is dict:
                for key, item in list(value.items()):
                    if type(key) is str and type(item) not in ATOMS and not isinstance(item, (types.FunctionType, type)):
                        self.places.setdefault(id(item), (module, name, key))

    @functools.cached_property
    def functions(self) -> dict[int, tuple[str, str, str]]:
        found: dict[int, tuple[str, str, str]] = {}
        for module in self.namespaces.values():
            if module.partition(".")[0] == "dynagraph":
                for name, value in list(vars(sys.modules[module]).items()):
                    _add_function(found, value, module, name)
                    if isinstance(value, type) and value.__module__ == module:
                        for own, member in list(vars(value).items()):
                            _add_function(found, member, module, f"{value.__qualname__}.{own}")
        return found


    @functools.cached_property
    def closures(self) -> "Closures":
        """Of the functions of this package's modules and classes: decorators and factories keep functions in cells."""
        found = Closures()
        for module, path, part in self.functions.values():
            function = _found(module, path)
            function = getattr(function, part) if part else function
            if isinstance(function, types.FunctionType):
                found.add(function)
        return found


class Closures:
    """Whose closure has a cell, and whose has a function in a cell, and where there, by identity."""

    def __init__(self) -> None:
        self.cells: dict[int, tuple[types.FunctionType, int]] = {}
        self.functions: dict[int, tuple[types.FunctionType, int]] = {}

    def add(self, function: types.FunctionType) -> None:
        for k, cell in enumerate(function.__closure__ or ()):
            self.cells.setdefault(id(cell), (function, k))
            held = None if cell == types.CellType() else cell.cell_contents
            if isinstance(held, types.FunctionType) and id(held) not in self.functions:
                self.functions[id(held)] = function, k
                self.add(held)


def _add_function(found: dict[int, tuple[str, str, str]], value: Any, module: str, path: str) -> None:
    if isinstance(value, types.FunctionType):
        found.setdefault(id(value), (module, path, ""))
    elif isinstance(value, (property, staticmethod, classmethod)):
        for part in OF_CLASS:
            function = getattr(value, part, None)
            if function is not None:
                found.setdefault(id(function), (module, path, part))


# -- writing ----------------------------------------------------------------------------------------------------------


class Known:
    """What one program's parts may be referred to by: names, the functions that they are of, and the sources of guards.

    `sources`: the bytes of those that were needed, whether the type of what stands there is meant, and its digest; each may need
    those before it.
    """

    def __init__(self, holdings: Holdings, guards: Iterable[Guard], function: types.FunctionType):
        self.holdings, self.function = holdings, function
        self.by_source: dict[int, tuple[Source, bool]] = {}  # of what is looked at itself, or as a type
        self.bases: dict[int, tuple[type, int]] = {}  # classes -> one of these types, and the place in its MRO
        self.members: dict[int, tuple[type, str, str]] = {}  # functions -> one of these classes, the name there, and the attribute
        self.cells: dict[int, tuple[types.FunctionType, int]] = {}
        self.codes: dict[int, types.FunctionType] = {}
        self.defaults: dict[int, tuple[types.FunctionType, str]] = {}
        self.sources: list[tuple[bytes, bool, str]] = []
        self._numbers: dict[int, int] = {}
        self._begun: set[int] = set()  # whose sources are being written
        self._references: dict[int, tuple[Any, ...]] = {}
        self._kept: list[Any] = []
        self.note(function)
        for guard in guards:
            if isinstance(guard, Is):
                if isinstance(guard.object, (types.FunctionType, type)):
                    self.by_source.setdefault(id(guard.object), (guard.source, False))
                if isinstance(guard.object, types.FunctionType):
                    self.note(guard.object)
            elif isinstance(guard, (HasType, UnchangedType)):
                self._note_class(guard.source, guard.kind if isinstance(guard, HasType) else guard.cls)

    def note(self, function: types.FunctionType) -> None:
        """A function whose code, defaults and cells may be referred to."""
        self.codes.setdefault(id(function.__code__), function)
        for name in ("__defaults__", "__kwdefaults__"):
            self.defaults.setdefault(id(getattr(function, name)), (function, name))
        for k, cell in enumerate(function.__closure__ or ()):
            self.cells.setdefault(id(cell), (function, k))

    def _note_class(self, source: Source, cls: type) -> None:
        """A class that is found as the type of what stands at a source: no name leads to one that a function has made."""
        if MADE not in cls.__qualname__ or id(cls) in self.by_source:
            return
        self.by_source[id(cls)] = source, True
        for k, base in enumerate(cls.__mro__):
            if MADE in base.__qualname__:
                self.bases.setdefault(id(base), (cls, k))
                for name, value in vars(base).items():
                    for attribute in ("", *OF_CLASS):
                        function = getattr(value, attribute, None) if attribute else value
                        if isinstance(function, types.FunctionType):
                            self.members.setdefault(id(function), (base, name, attribute))
                            self.note(function)

    def written(self, value: Any) -> bytes:
        """A value as bytes."""
        return self.written_with_references(value)[0]

    def written_with_references(self, value: Any) -> tuple[bytes, list[Any]]:
        """A value as bytes, and the objects there that a `Loader` has to find."""
        out = io.BytesIO()
        saver = Saver(out, self)
        saver.dump(value)
        return out.getvalue(), list(saver.referred.values())

    def reference(self, thing: Any) -> tuple[Any, ...]:
        """How a function or class is found: by its name, or where a guard looks at it."""
        known = self._references.get(id(thing))
        if known is None:
            known = self._references[id(thing)] = self._reference(thing)
            self._kept.append(thing)  # no other has its identity meanwhile
        return known

    def _reference(self, thing: Any) -> tuple[Any, ...]:
        if thing is self.function:
            return ("called",)
        name = _by_name(thing) or self.holdings.functions.get(id(thing))
        if name is not None:
            return ("name", *name, digest_of(thing))
        if id(thing) in self.members:
            cls, *path = self.members[id(thing)]
            return ("member", *path, *self.reference(cls))
        number = self._numbers.get(id(thing))
        if number is None:
            source, of_type = self.by_source.get(id(thing), (None, False))
            if source is None and id(thing) in self.bases:
                cls, k = self.bases[id(thing)]
                return ("base", k, *self.reference(cls))
            if source is None and id(thing) in self.holdings.closures.functions:
                function, k = self.holdings.closures.functions[id(thing)]
                return ("inner", k, digest_of(thing), *self.reference(function))
            if source is None or id(thing) in self._begun:
                raise NotSaved(f"{thing.__module__}.{thing.__qualname__}, which no name leads to")
            self._begun.add(id(thing))
            entry = self.written(source), of_type, digest_of(thing)
            number = self._numbers[id(thing)] = len(self.sources)
            self.sources.append(entry)
        return "source", number


class Saver(pickle.Pickler):
    """Writes what a program is; NotSaved where it has what goes by neither name nor value."""

    def __init__(self, file: io.BytesIO, known: Known):
        super().__init__(file, protocol=5)
        self.known = known
        self.referred: dict[Any, Any] = {}  # what goes by reference, by that
        self._parts: set[int] = set()  # containers of what goes by value

    def persistent_id(self, obj: Any) -> Any:
        reference = self._reference_of(obj)
        if reference is not None:
            self.referred.setdefault(reference, obj)
        return reference

    def _reference_of(self, obj: Any) -> Any:
        kind = type(obj)
        if kind in PLAIN:
            return None
        if (kind is tuple or kind is dict) and id(obj) in self.known.defaults:  # which guards know by identity
            function, name = self.known.defaults[id(obj)]
            return ("attribute", name, *self.known.reference(function))
        if kind is tuple:
            return None
        made_by = getattr(obj, "__dynagraph_made_by__", None) if kind.__module__.startswith("dynagraph.") or kind is type else None
        if made_by is not None:  # it is made when it is first needed
            made = made_by()
            if made is not None:
                return "call", *made
        if kind is type and obj.__module__.startswith(BY_VALUE) and _by_name(obj) is not None:
            return None  # pickle's own names take less: they are written once, and the versions in the key vouch for them
        if kind is types.FunctionType and obj in MAKERS:
            return None
        place = self.known.holdings.places.get(id(obj))
        if place is not None:
            return ("held", *place)
        if isinstance(obj, types.ModuleType):
            own = getattr(obj.__spec__, "name", obj.__name__)  # torch is dynagraph.torch in other processes, too
            return "module", own if sys.modules.get(own) is obj else obj.__name__
        if kind is dict:
            return self._of_dict(obj)
        if isinstance(obj, (types.FunctionType, type, DISPATCHER, np.ufunc)):
            return self.known.reference(obj)
        if isinstance(obj, types.BuiltinFunctionType) and isinstance(obj.__self__, (types.ModuleType, type(None))):
            return self.known.reference(obj)
        if isinstance(obj, types.CodeType):
            runs = self.known.codes.get(id(obj))
            if runs is None:
                raise NotSaved(f"code of {obj.co_qualname}")
            return ("code", code_digest(obj), *self.known.reference(runs))
        if isinstance(obj, types.CellType):
            owner = self.known.cells.get(id(obj)) or self.known.holdings.closures.cells.get(id(obj))
            if owner is None:
                raise NotSaved("a closure's cell")
            return ("cell", owner[1], *self.known.reference(owner[0]))
        if isinstance(obj, (types.MemberDescriptorType, types.GetSetDescriptorType)):
            return ("member", obj.__name__, "", *self.known.reference(obj.__objclass__))
        if isinstance(obj, (types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType)):
            return None  # of a class or object, by whose attribute pickle finds it
        if isinstance(obj, (np.generic, Node)) or kind.__module__.startswith(BY_VALUE):
            self._parts.update(_containers_of(obj))
            return None
        if kind in (list, set, np.ndarray, types.MappingProxyType) and id(obj) in self._parts:
            return None
        raise NotSaved(f"{kind.__module__}.{kind.__qualname__}")

    def _of_dict(self, obj: dict[Any, Any]) -> Any:
        module = self.known.holdings.namespaces.get(id(obj))
        if module is not None:
            return "namespace", module
        if list(obj) != ["value"] and id(obj) not in self._parts:  # {"value": ...}: of a guard's own
            raise NotSaved(f"a dict with the keys {list(obj)[:5]}")
        return None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, IntExpr):
            return IntExpr, (obj.terms,)  # its hash is another one in each process
        if isinstance(obj, SymInt):
            return SymInt, (obj._expr, obj.env)
        if isinstance(obj, np.ndarray):
            return _array, (obj.tobytes(), obj.dtype, obj.shape)
        if isinstance(obj, Graph):
            return _graph, (obj.name, obj.constants, obj.library, tuple(_rows(obj)))
        reduce = getattr(type(obj), "__dynagraph_parts__", None)
        if reduce is not None:
            return type(obj), reduce(obj)
        if type(obj).__module__.startswith(BY_VALUE) and hasattr(obj, "__dict__") and not isinstance(obj, (type, tuple)):
            self._parts.add(id(vars(obj)))
            return copyreg.__newobj__, (type(obj),), vars(obj)  # type: ignore[attr-defined]
        return NotImplemented


def _containers_of(obj: Any) -> Iterator[int]:
    """The lists, dicts and sets that are part of an object which goes by value."""
    if isinstance(obj, Graph):
        pending: list[Any] = [obj.constants, *(node.attrs for node in obj.nodes)]
    elif isinstance(obj, IntExpr):
        pending = [obj.terms]
    elif isinstance(obj, tuple):
        pending = list(obj)
    else:
        reduce = getattr(type(obj), "__dynagraph_parts__", None)
        pending = list(reduce(obj)) if reduce is not None else list(getattr(obj, "__dict__", {}).values())
    while pending:
        value = pending.pop()
        if type(value) in (list, set, dict, np.ndarray):
            yield id(value)
        if type(value) in (list, set, tuple, frozenset):
            pending += value
        elif type(value) is dict:
            pending += [*value, *value.values()]


def _array(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(data, dtype).reshape(shape)  # read-only, as a graph's constants are


Row = tuple[str, str, str, tuple[int, ...], dict[str, Any], Meta | None, Location | None]


def _rows(graph: Graph) -> list[Row]:
    numbers: dict[Node, int] = {}
    rows = []
    for k, node in enumerate(graph.nodes):
        numbers[node] = k
        target = node.target if isinstance(node.target, str) else node.target.name
        args = tuple(numbers[arg] for arg in node.args)
        rows.append((node.name, node.kind, target, args, node.attrs, node.meta if node.kind != "output" else None, node.location))
    return rows


def _graph(name: str, constants: dict[str, Any], library: str, rows: tuple[Row, ...]) -> Graph:
    graph = Graph(name, constants, library)
    nodes: list[Node] = []
    for own, kind, target, args, attrs, meta, location in rows:
        op = OPS[target] if kind == "call_function" else target
        nodes.append(graph.append(own, kind, op, tuple(nodes[k] for k in args), attrs, meta, location))
    return graph


MAKERS = frozenset({_array, _graph})


class UnreadGraph(Graph):
    """A graph of another process, which is read when something of it is looked at first: calls need none.

    All that it refers to was found, and seen to be what it was, when the program was read.
    """

    n_checks = 0  # of its own, as the dispatcher asks for it

    def __init__(self, name: str, library: str, n_checks: int, read: Callable[[], Graph]):
        self.name, self.library, self.n_checks, self._read = name, library, n_checks, read

    def __getattr__(self, name: str) -> Any:
        """What it lacks until it was read; threads that read it at once all read the same."""
        read = self.__dict__.get("_read")
        if read is not None:
            graph = read()
            for node in (graph._root, *graph.nodes):
                node.graph = self
            if "_root" not in self.__dict__:
                self.__dict__.update(vars(graph))
            self.__dict__.pop("_read", None)
        return object.__getattribute__(self, name)


# -- reading ----------------------------------------------------------------------------------------------------------


class Loader(pickle.Unpickler):
    """Reads what a `Saver` wrote; Stale where something is gone or was changed.  `given`: what stands at its sources now."""

    def __init__(self, data: bytes, function: types.FunctionType, given: tuple[Any, ...], seen: dict[Any, Any] | None = None):
        super().__init__(io.BytesIO(data))
        self.function, self.given = function, given
        self._seen: dict[Any, Any] = {} if seen is None else seen

    def later(self, data: bytes) -> Callable[[], Any]:
        """What reads more, whose references this one has looked up."""
        function, given, seen = self.function, self.given, self._seen
        return lambda: Loader(data, function, given, seen).load()

    def persistent_load(self, pid: Any) -> Any:
        if pid not in self._seen:
            try:
                self._seen[pid] = getattr(self, f"_{pid[0]}")(*pid[1:])
            except (KeyError, AttributeError, IndexError, ValueError, NotSaved) as error:
                raise Stale(f"{pid}: {error!r}") from error
        return self._seen[pid]

    def _held(self, module: str, name: str, *keys: str) -> Any:
        found = vars(sys.modules[module])[name]
        return found[keys[0]] if keys else found

    def _module(self, name: str) -> Any:
        return sys.modules[name]

    def _namespace(self, name: str) -> Any:
        return sys.modules[name].__dict__

    def _name(self, module: str, qualname: str, attribute: str, digest: str) -> Any:
        found = _found(module, qualname)
        if attribute:
            found = getattr(found, attribute)
        if digest_of(found) != digest:
            raise Stale(f"{module}.{qualname} was changed")
        return found

    def _call(self, module: str, name: str, *args: Any) -> Any:
        return getattr(sys.modules[module], name)(*args)

    def _called(self) -> Any:
        return self.function

    def _source(self, number: int) -> Any:
        return self.given[number]

    def _code(self, digest: str, *function: Any) -> Any:
        code = self.persistent_load(function).__code__
        if code_digest(code) != digest:
            raise Stale(f"{code.co_qualname} was changed")
        return code

    def _attribute(self, name: str, *function: Any) -> Any:
        return getattr(self.persistent_load(function), name)

    def _cell(self, k: int, *function: Any) -> Any:
        return self.persistent_load(function).__closure__[k]

    def _inner(self, k: int, digest: str, *function: Any) -> Any:
        found = self.persistent_load(function).__closure__[k].cell_contents
        if not isinstance(found, types.FunctionType) or digest_of(found) != digest:
            raise Stale(f"{found!r} was changed")
        return found

    def _member(self, name: str, attribute: str, *cls: Any) -> Any:
        found = self.persistent_load(cls).__dict__[name]
        return getattr(found, attribute) if attribute else found

    def _base(self, k: int, *cls: Any) -> Any:
        return self.persistent_load(cls).__mro__[k]


def _standing_there(
    sources: tuple[tuple[bytes, bool, str], ...], function: types.FunctionType, values: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The functions and classes at sources, for the arguments of a call; Stale where one is another."""
    found: tuple[Any, ...] = ()
    for data, of_type, digest in sources:
        source = Loader(data, function, found).load()
        try:
            thing = source.now(values, function.__closure__ or ())
            thing = type(thing) if of_type else thing
            same = isinstance(thing, (types.FunctionType, type)) and digest_of(thing) == digest
        except (LookupError, AttributeError, TypeError, ValueError, NotSaved) as error:
            raise Stale(f"{source}: {error!r}") from error
        if not same:
            raise Stale(f"{source} was changed")
        found += (thing,)
    return found


def saved(value: Any, graph: Graph, holdings: Holdings, guards: tuple[Guard, ...], function: types.FunctionType) -> bytes:
    """The bytes of a value, of a graph and guards that belong to it, and of the sources that they need.  `function`: whose program
    it is.
    """
    known = Known(holdings, guards, function)
    rows, of_graph = known.written_with_references(graph)
    texts, of_guards = known.written_with_references(guards)
    data = known.written((value, (*of_graph, *of_guards), (graph.name, graph.library, graph.n_checks)))
    return pickle.dumps((tuple(known.sources), data, rows, texts))


def loaded(
    data: bytes, function: types.FunctionType, values: tuple[Any, ...]
) -> tuple[Any, Graph, Callable[[], tuple[Guard, ...]]]:
    """What `saved` has written, for a call of the function with these bound parameters; raises Stale.  The guards come last: what
    reads them, which works as long as nothing of what they refer to is replaced.
    """
    sources, value, rows, texts = pickle.loads(data)
    try:
        loader = Loader(value, function, _standing_there(sources, function, values))
        value, _, (name, library, n_checks) = loader.load()
    except (AttributeError, ImportError) as error:  # a name that pickle itself looks up
        raise Stale(str(error)) from error
    return value, UnreadGraph(name, library, n_checks, loader.later(rows)), loader.later(texts)


__all__ = ["Holdings", "NotSaved", "Stale", "code_digest", "function_digest", "loaded", "saved"]
