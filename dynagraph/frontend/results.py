"""What a program does when its graph has run, as a recipe for the dispatcher: effects in order, objects, the result.

It decides what the graph's outputs are.  A view of an argument or of another output is given as a view of the same memory; an
argument is given as itself; what is mentioned twice is one object.  Objects made by the captured code are built in their last
state.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any

from dynagraph.array_libraries import NUMPY, ArrayLibrary
from dynagraph.frontend import masks
from dynagraph.frontend.assemble import called_from
from dynagraph.frontend.breaks import Break
from dynagraph.frontend.executor import Executor, Generator, Step
from dynagraph.frontend.memory import is_broadcast, way_to
from dynagraph.frontend.source import Returned
from dynagraph.frontend.values import (
    DELETED,
    NULL,
    UNKNOWN_KEYS,
    Array,
    Cell,
    Const,
    Dict,
    DictView,
    Flags,
    Function,
    Getter,
    Identity,
    Iterator,
    Masked,
    Method,
    Number,
    Object,
    ObjectKey,
    Opaque,
    Partial,
    Sequence,
    Set,
    Slice,
    Super,
)
from dynagraph.frontend.wrapping import Lazy
from dynagraph.ir.graph import Node
from dynagraph.ir.interpreter import concrete
from dynagraph.ir.ops import Strided, memory_of
from dynagraph.ir.shapes import SymInt, expr_of
from dynagraph.ir.size_programs import size_program

Recipe = tuple[Any, ...]
SET_CONTENTS = types.CellType.cell_contents.__set__  # type: ignore[attr-defined]
DESCRIPTORS_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType)


class CannotBuild(Break):
    """A value that no recipe gives.  `born`: the step at which it was made, before which a capture may end."""

    def __init__(self, detail: str, born: int = 0):
        super().__init__("UNSUPPORTED_RESULT", None, detail)
        self.born = born


class Results:
    """Builds the recipe of a capture's effects and values, collecting the nodes that the graph must output."""

    def __init__(self, ex: Executor):
        self.ex = ex
        self.nodes: list[Node] = []
        self.scalars: list[bool] = []
        self.arrays_of_scalars: dict[Node, Node] = {}
        self.into: list[int | None] = []  # for each node the input whose memory it is written to
        self._uses: dict[int, int] = {}
        self._circular: set[int] = set()
        self._memos: dict[int, Recipe] = {}
        self._n_memos = 0
        self._returned: dict[Returned, Recipe] = {}
        self._handed: set[Returned] = set()  # what the recipe gives of it
        self._pending: list[tuple[Recipe, Any, tuple[Any, ...]]] = []  # what completes objects that were made empty

    def prologue(self) -> tuple[tuple[Any, ...], ...]:
        """The calls before the program, as a plan takes them."""
        return tuple(self._step(step) for step in self.ex.prologue)

    def _step(self, step: Step) -> tuple[Any, ...]:
        called = ("call", step.made.function, tuple(self.build(a) for a in step.args))
        made = self._returned[step.made] = ("memo", self._new_memo(), called)
        if step.node is None:
            return (made,)
        node = step.node
        shape = tuple(size_program(expr_of(d)) for d in node.shape)
        slot = self.ex.graph.placeholders.index(node)
        return made, slot, node.dtype.numpy, shape, self.ex.arrays[node].is_scalar if node in self.ex.arrays else True

    def program(self, values: list[Any], finish: Callable[[list[Recipe]], Recipe]) -> Recipe:
        """The effects, then what `finish` makes of the recipes of `values`."""
        roots = [value for _, args in self.ex.effects for value in args] + values
        for value in roots:
            self._count(value, set())
        effects = [self._effect(function, args) for function, args in self.ex.effects]
        result = finish([self.build(v) for v in values])
        fills = []
        while self._pending:
            owner, function, args = self._pending.pop(0)
            fills.append(("make", function, (owner, *(self.build(a) for a in args))))
        self._write_inputs()
        before = [*effects, *fills]
        return ("do", tuple(before), result) if before else result

    def _write_inputs(self) -> None:
        """Memory of the caller's gets its last value."""
        inputs = self.ex.graph.placeholders
        for memory in self.ex.memories.written_inputs():
            source = self.ex.arrays[memory.base].source
            if isinstance(source, Returned) and source not in self._handed:
                continue  # nobody sees it
            self.nodes.append(memory.value)
            self.scalars.append(False)
            self.into.append(inputs.index(memory.base))
        for check in self.ex.builder.checks:
            self.nodes.append(check)
            self.scalars.append(True)
            self.into.append(None)

    def _effect(self, function: Any, args: tuple[Any, ...]) -> Recipe:
        built = tuple(self.build(a) for a in args)
        if not isinstance(function, Returned):
            return ("call", function, built)
        made = self._returned[function] = ("memo", self._new_memo(), ("call", function.function, built))
        return made

    def _parts(self, value: Any) -> Any:
        """The values that one made here holds."""
        if isinstance(value, Sequence):
            return [*value.items, *value.fields.values()]
        if isinstance(value, Dict) and value.is_namespace:
            return [value.owner]
        if isinstance(value, Dict):
            return [*value.items.values(), *value.fields.values(), value.factory]
        if isinstance(value, (Object, Function)):
            held = list(value.fields.values())
            if isinstance(value, Object) and value.entries is not None:
                held += value.entries.items.values()
            return held + [*value.defaults, *value.kwdefaults.values(), *value.closure] if isinstance(value, Function) else held
        if isinstance(value, Cell):
            return [value.value]
        if isinstance(value, Method):
            return [value.owner, value.function]
        if isinstance(value, Flags):
            return [value.owner]
        if isinstance(value, DictView):
            return [value.owner]
        if isinstance(value, Partial):
            return [value.function, *value.args, *value.kwargs.values(), *value.fields.values()]
        if isinstance(value, Getter):
            return [*value.args, *value.kwargs.values()]
        return ()

    def _count(self, value: Any, above: set[int]) -> None:
        value = self.ex.resolve(value)
        if id(value) in above:
            self._circular.add(id(value))
            return
        self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        if self._uses[id(value)] > 1 or getattr(value, "source", None) is not None:
            return
        above = above | {id(value)}
        for part in self._parts(value):
            self._count(part, above)

    # -- recipes --------------------------------------------------------------------------------------------------------
    def build(self, value: Any) -> Recipe:
        """The recipe of one value."""
        if type(value) is Lazy and value.source not in self.ex.wrapped:
            return ("arg", self.ex.guards.register(value.source))  # handed on unseen
        value = self.ex.resolve(value)
        source = getattr(value, "source", None)
        if isinstance(value, Const):
            return self._constant(value.value)
        if isinstance(value, Cell) and source is not None:
            return ("const", value.real) if value.owner is None else ("arg", self.ex.guards.register(value.owner))
        if isinstance(source, Returned):
            return self._given(source)
        if source is not None:
            return ("arg", self.ex.guards.register(source))
        known = self._memos.get(id(value))
        if known is not None:
            return known
        if isinstance(value, (Object, Cell, Function)) or id(value) in self._circular or getattr(value, "is_namespace", False):
            return self._made_empty(value)
        if self._uses.get(id(value), 0) > 1 and not self._is_output(value):
            number = self._new_memo()
            made = self._memos[id(value)] = ("memo", number, self._fresh(value))
            return made
        return self._fresh(value)

    def _given(self, source: Returned) -> Recipe:
        self._handed.add(source)
        return self._returned[source]

    def _new_memo(self) -> int:
        self._n_memos += 1
        return self._n_memos - 1

    def _constant(self, value: Any) -> Recipe:
        if isinstance(value, SymInt):
            return ("size", size_program(expr_of(value)))
        return ("const", value)

    def _is_output(self, value: Any) -> bool:
        return isinstance(value, Array) and (value.is_scalar or memory_of(value.node) is None)

    def _fresh(self, value: Any) -> Recipe:
        found = _BUILDERS.get(type(value))
        if found is not None:
            return found(self, value)
        if isinstance(value, Iterator):
            return self._remade(value)
        if isinstance(value, Identity):
            raise CannotBuild("the id() of an object made here", value.born)
        what = value.what if isinstance(value, Opaque) else f"a {type(value).__name__.lower()}"
        raise CannotBuild(what)

    def _remade(self, value: Any) -> Recipe:
        """What says itself how it is made."""
        rebuilt = getattr(value, "rebuilt", None) or getattr(value, "remade", None)
        if rebuilt is None:
            raise CannotBuild("an iterator", value.born)
        try:
            function, args = rebuilt()
        except CannotBuild:
            raise
        except Break as stop:
            raise CannotBuild(stop.detail, value.born) from None
        return ("make", function, tuple(self.build(a) for a in args))

    def _made_empty(self, value: Any) -> Recipe:
        """An object that is made empty first, and filled when all others are there: others may refer to it."""
        number = self._new_memo()
        if isinstance(value, Object):
            made, fills = self._object(value)
        elif isinstance(value, Cell):
            made, fills = ("make", types.CellType, ()), [] if value.value is NULL else [(SET_CONTENTS, (value.value,))]
        elif isinstance(value, Function):
            made = self._function(value)
            fills = [(setattr, (Const(k), v)) for k, v in value.fields.items() if v is not DELETED]
        elif isinstance(value, Sequence) and value.kind is list:
            made, fills = ("list", ()), [(list.append, (item,)) for item in value.items]
        elif isinstance(value, Dict) and value.is_namespace:
            made, fills = ("make", getattr, (self.build(value.owner), ("const", "__dict__"))), []
        elif isinstance(value, Dict) and value.kind is dict:
            made, fills = ("dict", ()), [(dict.__setitem__, (self.ex.constant(k), v)) for k, v in value.items.items()]
            _check_keys(value.items)
        else:
            raise CannotBuild("an object that holds itself")
        recipe = self._memos[id(value)] = ("memo", number, made)
        self._pending += [(recipe, function, args) for function, args in fills]
        return recipe

    def _object(self, value: Object) -> tuple[Recipe, list[tuple[Any, tuple[Any, ...]]]]:
        if hasattr(value, "remade"):
            return self._remade(value), []
        fields = {k: v for k, v in value.fields.items() if v is not DELETED}
        cls = value.kind
        setter = object.__setattr__
        if issubclass(cls, BaseException):
            args = self.build(fields.pop("args"))
            setter = BaseException.__setattr__
            made = [(set_traceback, (Const(tuple(value.raised_at)),))] if value.raised_at else []
            return ("make", new_exception, (("const", cls), args)), made + [(setter, (Const(k), v)) for k, v in fields.items()]
        fills = [(setter, (Const(k), v)) for k, v in fields.items()]
        if value.entries is not None:
            fills += [(set_entry, (Const(k), v)) for k, v in value.entries.items.items()]
        return ("make", object.__new__, (("const", cls),)), fills

    def _function(self, value: Function) -> Recipe:
        defaults = ("tuple", tuple(self.build(d) for d in value.defaults)) if value.defaults else ("const", None)
        named = ("dict", tuple((k, self.build(v)) for k, v in value.kwdefaults.items())) if value.kwdefaults else ("const", None)
        closure = ("tuple", tuple(self.build(c) for c in value.closure)) if value.closure else ("const", None)
        parts = (("const", value.code), ("const", value.globals), ("const", value.name), defaults, closure, named)
        return ("make", new_function, parts)

    # -- arrays -----------------------------------------------------------------------------------------------------------
    def _array(self, array: Array) -> Recipe:
        found = None if array.is_scalar else memory_of(array.node)
        if found is None:
            return self._output(array.node, True) if array.is_scalar else self._base(array.node)
        base, strided = found
        for view in way_to(array.node)[0]:
            if view in self.ex.warning:
                detail = "what np.broadcast_arrays stretched, which warns when it is written to; use np.broadcast_to"
                raise CannotBuild(detail, self.ex.warning[view])
        owner = self._base(base)
        if self.ex.library is not NUMPY:
            return self._device_view(owner, array.node)
        return ("view", owner, array.node.dtype.numpy, *_layout(strided), not is_broadcast(array.node))

    def _device_view(self, owner: Recipe, node: Node) -> Recipe:
        """A view that the library itself makes of the owner, step by step."""
        sizes = tuple(("size", (("s", k),)) for k in range(len(self.ex.env.values)))
        steps = DeviceView(self.ex.library, tuple((n.op.eager, dict(n.attrs)) for n in way_to(node)[0]))
        return ("make", steps, (owner, ("tuple", sizes)))

    def _base(self, base: Node) -> Recipe:
        """The array whose memory a value lies in."""
        owner = self.ex.arrays.get(base)
        if base.kind == "placeholder" and owner is not None and owner.source is not None and not owner.is_scalar:
            made = isinstance(owner.source, Returned)
            return self._given(owner.source) if made else ("arg", self.ex.guards.register(owner.source))  # type: ignore[arg-type]
        if base.kind == "placeholder" and base in self.ex.scalars:
            if base not in self.arrays_of_scalars:  # what np.reshape and its like make of a NumPy scalar before they view it
                self.arrays_of_scalars[base] = self.ex.builder.call("copy", base)
            return self._output(self.arrays_of_scalars[base], False)
        memory = self.ex.memories.of.get(base)
        return self._output(base if memory is None else memory.value, False)

    def _output(self, node: Node, scalar: bool) -> Recipe:
        for position, (known, is_scalar) in enumerate(zip(self.nodes, self.scalars)):
            if known is node and is_scalar is scalar:
                return ("out", position)
        self.nodes.append(node)
        self.scalars.append(scalar)
        self.into.append(None)
        return ("out", len(self.nodes) - 1)


# -- one builder for each kind of value -------------------------------------------------------------------------------------------


def _sequence(results: Results, value: Sequence) -> Recipe:
    parts = tuple(results.build(item) for item in value.items)
    if value.kind in (tuple, list):
        return (value.kind.__name__, parts)
    if value.kind is collections.deque:
        return ("make", collections.deque, (("list", parts), ("const", value.maxlen)))
    if issubclass(value.kind, tuple):
        made = ("make", tuple.__new__, (("const", value.kind), ("tuple", parts)))
        return ("make", with_fields, (made, _fields(results, value))) if value.fields else made
    return ("make", new_list, (("const", value.kind), ("list", parts), _fields(results, value)))


def _fields(results: Results, value: Any) -> Recipe:
    return ("dict", tuple((k, results.build(v)) for k, v in value.fields.items() if v is not DELETED))


def _check_keys(keys: Any) -> None:
    for key in keys:
        if isinstance(key, UNKNOWN_KEYS) and not (isinstance(key, ObjectKey) and key.of_value):
            raise CannotBuild("a dict or set with keys whose classes say what they are equal to", key.born)
        if isinstance(key, (tuple, frozenset)):
            _check_keys(key)


def _set(results: Results, value: Set) -> Recipe:
    _check_keys(value.items)
    for key in value.items:
        if isinstance(key, ObjectKey):
            raise CannotBuild("a set of instances of subclasses of numbers or texts", key.born)
    return ("make", value.kind, (("const", tuple(value.items)),))


def _dict(results: Results, value: Dict) -> Recipe:
    _check_keys(value.items)
    entries = tuple((k, results.build(v)) for k, v in value.items.items())
    plain: Recipe = ("dict", entries)
    if any(isinstance(k, ObjectKey) for k in value.items):
        keys = ("tuple", tuple(results.build(results.ex.constant(k)) for k in value.items))
        plain = ("make", dict_of, (keys, ("tuple", tuple(built for _, built in entries))))
    if value.kind is dict:
        return plain
    if value.kind is collections.defaultdict:
        return ("make", collections.defaultdict, (results.build(value.factory or Const(None)), plain))
    if value.kind in (collections.OrderedDict, collections.Counter):
        return ("make", value.kind, (plain,))
    return ("make", new_dict, (("const", value.kind), plain, _fields(results, value)))


def _dict_of(value: Dict) -> Any:
    return collections.OrderedDict if issubclass(value.kind, collections.OrderedDict) else dict


def _partial(results: Results, value: Partial) -> Recipe:
    args = ("tuple", tuple(results.build(a) for a in value.args))
    named = ("dict", tuple((k, results.build(v)) for k, v in value.kwargs.items()))
    made = ("make", new_partial, (results.build(value.function), args, named))
    return ("make", with_attributes, (made, _fields(results, value))) if value.fields else made


def _getter(results: Results, value: Getter) -> Recipe:
    args = ("tuple", tuple(results.build(a) for a in value.args))
    named = ("dict", tuple((k, results.build(v)) for k, v in value.kwargs.items()))
    return ("make", call_with, (("const", value.kind), args, named))


def bind(descriptor: Any, owner: Any) -> Any:
    """What reading a method written in C gives: CPython crashes where the class is left out and the method asks for it."""
    return descriptor.__get__(owner, type(owner))


def _method(results: Results, value: Method) -> Recipe:
    if isinstance(value.function, str):
        return ("make", getattr, (results.build(value.owner), ("const", value.function)))
    if isinstance(value.function, Const) and isinstance(value.function.value, DESCRIPTORS_IN_C):
        found = value.function.value  # which a subclass may have redefined
        return ("make", bind, (("const", found), results.build(value.owner)))
    if isinstance(value.function, Const) and not isinstance(value.function.value, types.BuiltinFunctionType):
        return ("make", getattr, (results.build(value.owner), ("const", value.function.value.__name__)))
    return ("make", types.MethodType, (results.build(value.function), results.build(value.owner)))


def _generator(results: Results, value: Generator) -> Recipe:
    """One that has not started: a call of its function makes it."""
    if value.started or value.frame is None:
        raise CannotBuild("a half-consumed generator", value.born)
    function, code, given = value.frame.function, value.frame.code, value.arguments
    n, n_all = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames
    args = [given[name] for name in names[:n]]
    named = {name: given[name] for name in names[n:n_all]}
    position = n_all
    if code.co_flags & 4:
        args += given[names[position]].items
        position += 1
    if code.co_flags & 8:
        named.update(given[names[position]].items)
    parts = ("tuple", tuple(results.build(a) for a in args)), ("dict", tuple((k, results.build(v)) for k, v in named.items()))
    return ("make", call_with, (results.build(function), *parts))


def _masked(results: Results, value: Masked) -> Recipe:
    function, args = masks.rebuilt(results.ex, value)
    return ("make", function, tuple(results.build(a) for a in args))


def _view_maker(value: DictView) -> Callable[[Any], Any]:
    if value.owner.kind is types.MappingProxyType:
        return getattr(types.MappingProxyType, value.name)
    return getattr(_dict_of(value.owner), value.name)


def _super(results: Results, value: Super) -> Recipe:
    return ("make", super, (("const", value.cls), results.build(value.owner)))


_BUILDERS: dict[type, Callable[[Results, Any], Recipe]] = {
    Array: Results._array,
    Flags: lambda results, value: ("make", getattr, (results.build(value.owner), ("const", "flags"))),
    Number: lambda results, value: (
        "call", complex if value.node.dtype.is_complex else float, (results._output(value.node, True),)
    ),
    Sequence: _sequence,
    Dict: _dict,
    Set: _set,
    Slice: lambda results, value: ("make", slice, tuple(results.build(p) for p in value.parts)),
    DictView: lambda results, value: ("make", _view_maker(value), (results.build(value.owner),)),
    Partial: _partial,
    Getter: _getter,
    Masked: _masked,
    Method: _method,
    Generator: _generator,
    Super: _super,
}


# -- what recipes call ------------------------------------------------------------------------------------------------------------


class DeviceView:
    """Makes a view of an array that only its library can look at: `steps` are functions of the op table, with attributes."""

    def __init__(self, library: ArrayLibrary, steps: tuple[tuple[Callable[..., Any], dict[str, Any]], ...]):
        self.library, self.steps = library, steps

    def __call__(self, base: Any, values: tuple[int, ...]) -> Any:
        sizes = {f"s{k}": value for k, value in enumerate(values)}
        view = base
        for function, attrs in self.steps:
            view = function(self.library.module, view, **{name: concrete(value, sizes) for name, value in attrs.items()})
        if view.size and not self.library.may_share_memory(view, base):
            raise SystemError(f"dynagraph: a view that {self.library.name} copies")
        return view


def new_exception(cls: type, args: tuple[Any, ...]) -> Any:
    made = cls.__new__(cls, *args)
    made.args = args
    return made


def set_traceback(error: BaseException, places: tuple[tuple[Any, int, dict[str, Any]], ...]) -> None:
    """Raise the error through frames that stand where the captured code raised it, innermost first."""
    function: Any = _raise
    args: tuple[Any, ...] = (error,)
    for code, line, scope in places:
        function, args = types.FunctionType(called_from(code, line), scope), (function, *args)
    try:
        function(*args)
    except BaseException as caught:
        first = last = caught.__traceback__.tb_next  # type: ignore[union-attr]
    for _ in places[1:]:
        last = last.tb_next  # type: ignore[union-attr]
    last.tb_next = None  # type: ignore[union-attr]
    error.__traceback__ = first
    while first is not None:
        first.tb_frame.clear()  # the error is in there
        first = first.tb_next
    del error, function, args, last  # the frames refer to this one


def _raise(error: BaseException) -> None:
    raise error


def set_entry(owner: Any, name: Any, value: Any) -> None:
    owner.__dict__[name] = value


def new_function(code: Any, scope: Any, name: str, defaults: Any, closure: Any, named: Any) -> Any:
    made = types.FunctionType(code, scope, code.co_name, defaults, closure)
    made.__qualname__ = name
    made.__kwdefaults__ = named
    return made


def dict_of(keys: tuple[Any, ...], values: tuple[Any, ...]) -> dict[Any, Any]:
    return dict(zip(keys, values))


def new_list(cls: type, items: list[Any], fields: dict[str, Any]) -> Any:
    made: Any = list.__new__(cls)
    list.extend(made, items)
    return with_fields(made, fields)


def new_dict(cls: type, items: dict[Any, Any], fields: dict[str, Any]) -> Any:
    base = collections.OrderedDict if issubclass(cls, collections.OrderedDict) else dict
    made: Any = base.__new__(cls)
    for key, value in items.items():
        base.__setitem__(made, key, value)
    return with_fields(made, fields)


def with_fields(made: Any, fields: dict[str, Any]) -> Any:
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def new_partial(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return functools.partial(function, *args, **named)


def with_attributes(made: Any, fields: dict[str, Any]) -> Any:
    vars(made).update(fields)
    return made


def call_with(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return function(*args, **named)


def _layout(strided: Strided) -> tuple[Any, Any, Any]:
    return (
        tuple(size_program(expr_of(d)) for d in strided.shape),
        tuple(size_program(expr_of(s)) for s in strided.strides),
        size_program(expr_of(strided.offset)),
    )


__all__ = ["CannotBuild", "Recipe", "Results"]
