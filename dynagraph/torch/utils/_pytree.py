"""``torch.utils._pytree``: nested tuples, lists and dicts.  Unlike in `dynagraph.pytree`, None and dataclasses are leaves."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dynagraph.torch.missing import getattr_of

PyTree = Any
IsLeaf = Callable[[Any], bool] | None


@dataclass(frozen=True)
class SequenceKey:
    """A place in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclass(frozen=True)
class MappingKey:
    """A place in a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True)
class GetAttrKey:
    """A field."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


class NodeDef(NamedTuple):
    """How containers of a type are taken apart and made again."""

    type: Any
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    keys_fn: Callable[[Any], list[Any]]


SUPPORTED_NODES: dict[Any, NodeDef] = {}


def _put(kind: Any, flatten: Callable[..., Any], unflatten: Callable[..., Any], keys: Callable[..., Any]) -> None:
    SUPPORTED_NODES[kind] = NodeDef(kind, flatten, unflatten, keys)


def _mapping_keys(tree: Any) -> list[Any]:
    return [MappingKey(key) for key in tree]


def _sequence_keys(tree: Any) -> list[Any]:
    return [SequenceKey(k) for k in range(len(tree))]


_put(tuple, lambda t: (list(t), None), lambda items, _: tuple(items), _sequence_keys)
_put(list, lambda t: (list(t), None), lambda items, _: list(items), _sequence_keys)
_put(dict, lambda t: (list(t.values()), list(t)), lambda items, keys: dict(zip(keys, items)), _mapping_keys)
_put(OrderedDict, lambda t: (list(t.values()), list(t)), lambda items, keys: OrderedDict(zip(keys, items)), _mapping_keys)
_put(
    defaultdict, lambda t: (list(t.values()), [t.default_factory, list(t)]),
    lambda items, context: defaultdict(context[0], zip(context[1], items)), _mapping_keys,
)  # fmt: skip
_put(deque, lambda t: (list(t), t.maxlen), lambda items, most: deque(items, maxlen=most), _sequence_keys)
_NAMEDTUPLE = NodeDef(
    namedtuple, lambda t: (list(t), type(t)), lambda items, kind: kind(*items), lambda t: [GetAttrKey(name) for name in t._fields]
)


def register_pytree_node(
    cls: Any, flatten_fn: Callable[..., Any], unflatten_fn: Callable[..., Any], *, serialized_type_name: str | None = None,
    to_dumpable_context: Any = None, from_dumpable_context: Any = None, flatten_with_keys_fn: Callable[..., Any] | None = None,
) -> None:  # fmt: skip
    """Have objects of a class be containers: ``flatten_fn`` gives a list and a context, of which ``unflatten_fn`` makes one."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")

    def keys(tree: Any) -> list[Any]:
        if flatten_with_keys_fn is None:
            return [SequenceKey(k) for k in range(len(flatten_fn(tree)[0]))]
        return [key for key, _ in flatten_with_keys_fn(tree)[0]]

    _put(cls, flatten_fn, unflatten_fn, keys)


_register_pytree_node = register_pytree_node


def _node_of(tree: Any) -> NodeDef | None:
    kind = type(tree)
    found = SUPPORTED_NODES.get(kind)
    return found if found is not None else _NAMEDTUPLE if is_namedtuple_class(kind) else None


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class is a named tuple."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_namedtuple(obj: Any) -> bool:
    """Whether an object, or a class, is a named tuple."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether an object is no container."""
    return (is_leaf is not None and is_leaf(tree)) or _node_of(tree) is None


@dataclass
class TreeSpec:
    """What a tree is without its leaves."""

    type: Any
    context: Any
    children_specs: list[TreeSpec] = field(default_factory=list)

    @property
    def num_leaves(self) -> int:
        return 1 if self.type is None else sum(child.num_leaves for child in self.children_specs)

    @property
    def num_children(self) -> int:
        return len(self.children_specs)

    @property
    def num_nodes(self) -> int:
        return 1 + sum(child.num_nodes for child in self.children_specs)

    def is_leaf(self) -> bool:
        return self.type is None

    def children(self) -> list[TreeSpec]:
        return self.children_specs

    def child(self, index: int) -> TreeSpec:
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves."""
        given = list(leaves)
        if len(given) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(given)} but the spec refers to a pytree that holds "
                f"{self.num_leaves} items ({self})."
            )
        return self._made(iter(given))

    def _made(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        node = _NAMEDTUPLE if self.type is namedtuple else SUPPORTED_NODES[self.type]
        return node.unflatten_fn([child._made(leaves) for child in self.children_specs], self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """What stands in another tree where this one has leaves."""
        if self.type is None:
            return [tree]
        node = _node_of(tree)
        if node is None or node.type != self.type:
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        parts, context = node.flatten_fn(tree)
        if self.type in (dict, OrderedDict, defaultdict):
            wanted = self.context[1] if self.type is defaultdict else self.context
            missing, extra = set(wanted) - set(tree), set(tree) - set(wanted)
            if missing or extra:
                told = [f"missing key(s): {missing}"] * bool(missing) + [f"extra key(s): {extra}"] * bool(extra)
                raise ValueError(f"Node keys mismatch; {'; '.join(told)}.")
            parts = [tree[key] for key in wanted]
        elif len(parts) != len(self.children_specs):
            raise ValueError(f"Node arity mismatch; expected {len(self.children_specs)}, but got {len(parts)}.")
        elif context != self.context:
            raise ValueError(f"Node context mismatch for custom node type {self.type!r}.")
        return [leaf for child, part in zip(self.children_specs, parts) for leaf in child.flatten_up_to(part)]

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        return f"TreeSpec({getattr(self.type, '__name__', self.type)}, {self.context}, {self.children_specs})"


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """Of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and other.type is None


def _flatten(tree: Any, leaves: list[Any], is_leaf: IsLeaf) -> TreeSpec:
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if node is None:
        leaves.append(tree)
        return LeafSpec()
    parts, context = node.flatten_fn(tree)
    return TreeSpec(node.type, context, [_flatten(part, leaves, is_leaf) for part in parts])


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree, and what it is without them.

    >>> tree_flatten({"a": 1, "b": (2, None)})
    ([1, 2, None], TreeSpec(dict, ['a', 'b'], [*, TreeSpec(tuple, None, [*, *])]))
    """
    leaves: list[Any] = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """The leaves of a tree, one after the other."""
    yield from tree_leaves(tree, is_leaf)


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    """What a tree is without its leaves."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """A tree like this one with ``func(leaf, *leaves of the others)`` in place of each leaf."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *(spec.flatten_up_to(rest) for rest in rests)))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Call ``func`` on each leaf; gives the tree."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for args in zip(leaves, *(spec.flatten_up_to(rest) for rest in rests)):
        func(*args)
    return tree


def _matches(kinds: Any) -> Callable[[Any], bool]:
    if isinstance(kinds, (type, tuple, types.UnionType)):
        return lambda x: isinstance(x, kinds)
    if callable(kinds):
        return kinds
    raise TypeError("Argument must be a type, a tuple of types, or a callable.")


def map_only(kinds: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function of what is of these types, anything else as it is."""
    fits = _matches(kinds)
    return lambda func: lambda x: func(x) if fits(x) else x


def tree_map_only(kinds: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf = None) -> Any:
    """As `tree_map`, for leaves of these types; others stay."""
    return tree_map(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_map_only_(kinds: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf = None) -> Any:
    """As `tree_map_`, for leaves of these types."""
    return tree_map_(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether it holds of every leaf."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether it holds of a leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(kinds: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether it holds of every leaf of these types."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if _matches(kinds)(x))


def tree_any_only(kinds: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether it holds of a leaf of these types."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if _matches(kinds)(x))


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves of a tree, each with the keys that lead to it."""
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if node is None:
        return [((), tree)]
    parts = zip(node.keys_fn(tree), node.flatten_fn(tree)[0])
    return [((key, *path), leaf) for key, part in parts for path, leaf in tree_leaves_with_path(part, is_leaf)]


def tree_flatten_with_path(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """As `tree_flatten`, with the keys that lead to each leaf."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """As `tree_map`, of ``func(keys, leaf, ...)``."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten(func(path, leaf, *rest) for (path, leaf), *rest in zip(found, *others))


def keystr(kp: Iterable[Any]) -> str:
    """Keys as the text that reads from a tree: ``['a'][0]``."""
    return "".join(map(str, kp))


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: IsLeaf = None) -> list[Any] | None:
    """The leaves of a tree, each as often as the other tree has leaves in its place; None where it does not fit."""
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if node is None:
        return [tree] * treespec.num_leaves
    if treespec.type != node.type:
        return None
    parts, context = node.flatten_fn(tree)
    if len(parts) != treespec.num_children or context != treespec.context:
        return None
    found: list[Any] = []
    for part, child in zip(parts, treespec.children_specs):
        leaves = _broadcast_to_and_flatten(part, child, is_leaf)
        if leaves is None:
            return None
        found += leaves
    return found


__getattr__ = getattr_of(__name__)
__all__ = [
    "GetAttrKey", "LeafSpec", "MappingKey", "PyTree", "PyTreeSpec", "SequenceKey", "TreeSpec", "is_namedtuple",
    "is_namedtuple_class", "keystr", "map_only", "register_pytree_node", "tree_all", "tree_all_only", "tree_any",
    "tree_any_only", "tree_flatten", "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves",
    "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_", "tree_map_with_path", "tree_structure",
    "tree_unflatten",
]  # fmt: skip
