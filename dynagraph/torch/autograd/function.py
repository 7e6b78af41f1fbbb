"""``autograd.Function``: operations with gradients of the user's own."""

from __future__ import annotations

import functools
import inspect
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from dynagraph.markers import at_capture
from dynagraph.torch.autograd.saved import Saved
from dynagraph.torch.core.engine import _fitted
from dynagraph.torch.core.grad_mode import is_grad_enabled, mode, no_grad
from dynagraph.torch.core.nodes import SECOND_TIME, Node, fitted
from dynagraph.torch.core.primitives import PRIMITIVES, Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply, record, storage_of, view, wrap, write

_VIEW_OF_FUNCTION = (
    "Output {} of {} is a view and is being modified inplace. This view was created inside a custom Function (or because an "
    "input was returned as-is) and the autograd logic to handle view+inplace would override the custom backward associated with "
    "the custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of "
    "the custom Function."
)


class FunctionCtx:
    """What `forward` leaves for `backward`: saved tensors and any attributes."""

    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True
    to_save: Any = ()
    saved_for_forward: Any = ()
    dirty_tensors: Any = None
    non_differentiable: Any = None
    _saved: Any = ()
    _node: Any = None
    _forward = False  # while `jvp` runs

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save inputs, outputs or other tensors for `backward`, where `saved_tensors` has them.  Call it once at most."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Save tensors for `jvp`."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(
                    "save_for_forward expects all arguments to be tensors; you should save non-tensors as attributes on ctx."
                )
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Declare the inputs that were written to; all of them must be outputs."""
        self.dirty_tensors = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        warnings.warn(
            "mark_shared_storage is deprecated. Tensors with shared storages are automatically tracked. Note that calls to "
            "`set_()` are not tracked",
            FutureWarning,
            stacklevel=2,
        )

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Declare outputs that have no gradient; `backward` gets zeros for them."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether `backward` gets zeros, rather than None, for outputs without a gradient."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What `save_for_backward` saved."""
        if self._saved is None:
            raise RuntimeError(SECOND_TIME)
        if self._forward and self.saved_for_forward:
            return self.saved_for_forward
        return tuple(None if s is None else s.read() for s in self._saved)

    saved_variables = saved_tensors

    def name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{type(self).__name__} object at {id(self):#x}>"

    def _find(self) -> Any:
        return None if self._node is None else self._node()

    @property
    def next_functions(self) -> Any:
        return self._find().next_functions

    @property
    def metadata(self) -> dict[Any, Any]:
        node = self._find()
        return {} if node is None else node.metadata

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        return self._find().register_hook(hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        return self._find().register_prehook(hook)

    def maybe_clear_saved_tensors(self) -> None:
        pass


class BackwardCFunction(FunctionCtx):
    """The class of contexts; each Function has its own, by its name."""

    _forward_cls: ClassVar[Any] = None

    def apply(self, *args: Any) -> Any:
        """Run the Function's `backward`."""
        return _backward_of(self._forward_cls)(self, *args)


class FunctionNode(Node):
    """`grad_fn` of a Function's results.  Attributes are its context's."""

    ctx: BackwardCFunction

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN or (name[:2] == "__" and name[-2:] == "__"):
            return super().__getattribute__(name)
        ctx = super().__getattribute__("__dict__").get("ctx")
        if ctx is not None and (name in ctx.__dict__ or not hasattr(Node, name)):
            return getattr(ctx, name)
        return super().__getattribute__(name)

    def short_name(self) -> str:
        return type(self).__name__.removesuffix("Backward")

    @property
    def next_functions(self) -> Any:
        return tuple(edge for edge, tensor in zip(Node.next_functions.fget(self), self.tensors) if tensor)

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{type(self).__name__} object at {id(self):#x}>"

    def pull(self, grads: Sequence[Any]) -> list[Any]:
        found = self._run([None if g is None else wrap(g) for g in grads])
        return [None if g is None else fitted(g._array, *meta) for g, meta in zip(found, self.metas)]

    def pull_tensors(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        if transposing.on and self.ctx._forward_cls.jvp is not _SingleLevelFunction.jvp:
            found = list(_Transposed.apply(self, *grads))
        else:
            found = self._run(list(grads))
        return [None if g is None else _fitted(g, *meta) for g, meta in zip(found, self.metas)]

    def _run(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        ctx, edges, name = self.ctx, self.edges, type(self).__name__
        if ctx.materialize_grads:
            grads = [
                wrap(np.zeros(shape, dtype)) if g is None and dtype.kind != "O" else g
                for g, (shape, dtype) in zip(grads, self.output_metas)
            ]
        results = _backward_of(ctx._forward_cls)(ctx, *(g for g, (_, d) in zip(grads, self.output_metas) if d.kind != "O"))
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        n = len(edges)
        if len(results) > n and all(g is None for g in results[n:]):
            del results[n:]
        if len(results) != n:
            raise RuntimeError(f"function {name} returned an incorrect number of gradients (expected {n}, got {len(results)})")
        tensors = self.tensors
        for k, g in enumerate(results):
            if g is None:
                continue
            if not tensors[k]:
                raise RuntimeError(
                    f"function {name} returned a gradient different than None at position {k + 1}, but the corresponding forward "
                    "input was not a Variable"
                )
            if not isinstance(g, Tensor):
                raise RuntimeError(f"expected Variable or None (got {type(g).__name__})")
            if edges[k] is None:
                results[k] = None
                continue
            shape = self.metas[k][0]
            if g._array.shape != shape and not _expands(shape, g._array.shape):
                raise RuntimeError(
                    f"Function {name} returned an invalid gradient at index {k} - got {list(g._array.shape)} but expected shape "
                    f"compatible with {list(shape)}"
                )
        return results

    def release(self) -> None:
        if self.ctx._saved:
            self.ctx._saved = None


_OWN = frozenset({
    "ctx", "edges", "metas", "next_functions", "output_metas", "attrs", "saved", "saved_out", "sequence", "tensors", "primitive",
    "pull", "pull_tensors", "release", "name", "short_name", "prehooks", "posthooks", "output_hooks", "retainers", "made_at",
    "_run",
})  # fmt: skip


class _Transposing(threading.local):
    on = False


transposing = _Transposing()  # whether gradients are computed for forward mode, which reads only how they depend on the cotangents


def _expands(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to another."""
    missing = len(target) - len(shape)
    return missing >= 0 and all(n in (1, m) for n, m in zip(shape, target[missing:]))


class FunctionMeta(type):
    """Makes the class of contexts of each Function."""

    _backward_cls: type[BackwardCFunction]
    _primitives: dict[int, Primitive]
    _signature: inspect.Signature

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]):
        cls._backward_cls = type(f"{name}Backward", (BackwardCFunction,), {"_forward_cls": cls})
        cls._backward_cls.__module__ = "torch.autograd.function"
        cls._primitives = {}
        super().__init__(name, bases, attrs)


class _SingleLevelFunction(metaclass=FunctionMeta):
    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the results: ``forward(ctx, *inputs)``, or ``forward(*inputs)`` where there is `setup_context`."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what `backward` needs."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients by the inputs, from those of the outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode "
            "AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of the outputs, from those of the inputs."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )


class Function(_SingleLevelFunction):
    """The base of operations with gradients of their own.  Call them by `apply`.

    >>> from dynagraph import torch
    >>> class Exp(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, i):
    ...         result = i.exp()
    ...         ctx.save_for_backward(result)
    ...         return result
    ...     @staticmethod
    ...     def backward(ctx, grad_output):
    ...         (result,) = ctx.saved_tensors
    ...         return grad_output * result
    >>> x = torch.zeros(2, requires_grad=True)
    >>> Exp.apply(x).sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any):
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should invoke them "
            "on the class itself. Instantiating an autograd function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with "
            "static forward method. (Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """What the Function does under `torch.vmap`: inputs with a dimension of examples, and where it is; so the results."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """The results of `forward`, with the gradient that `backward` gives."""
        has_setup = cls.setup_context is not _SingleLevelFunction.setup_context
        if has_setup:
            args = _bound(cls, args, kwargs)
            kwargs = {}
        if cls.vmap is not Function.vmap and batching is not None:
            batched = batching(cls, args)
            if batched is not NotImplemented:
                return batched
        ctx = cls._backward_cls()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        recorded = mode.grad and any(ctx.needs_input_grad)
        with no_grad():
            if has_setup:
                given = cls.forward(*args)
                cls.setup_context(ctx, args, given)
            else:
                given = cls.forward(ctx, *args, **kwargs)
        outputs = list(given) if isinstance(given, tuple) else [given]
        _check_marks(ctx, outputs)
        _finish(cls, ctx, args, outputs, recorded)
        if not isinstance(given, tuple):
            return outputs[0]
        return type(given)(*outputs) if hasattr(given, "_fields") else tuple(outputs)


batching: Callable[[Any, Any], Any] | None = None  # set by `torch.func`: applies a Function's `vmap` where inputs are batched


@at_capture
def _takes(function: Any, count: int) -> bool:
    """Whether so many arguments by position are all that a Python function takes; of functions that others wrap, no."""
    if type(function) is not types.FunctionType or hasattr(function, "__wrapped__"):
        return False
    code = function.__code__
    if code.co_kwonlyargcount or code.co_flags & inspect.CO_VARKEYWORDS:
        return False
    return bool(count == code.co_argcount or (count > code.co_argcount and code.co_flags & inspect.CO_VARARGS))


def _bound(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments of `forward` by position, defaults among them."""
    if not kwargs and _takes(cls.forward, len(args)):
        return args
    signature = cls.__dict__.get("_signature")
    if signature is None:
        signature = cls._signature = inspect.signature(cls.forward)
    given = signature.bind(*args, **kwargs)
    given.apply_defaults()
    return given.args


def _backward_of(cls: Any) -> Callable[..., Any]:
    own_backward = cls.backward is not _SingleLevelFunction.backward
    own_vjp = cls.vjp is not _SingleLevelFunction.vjp
    if own_backward and own_vjp:
        raise RuntimeError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them."
        )
    return cls.vjp if own_vjp else cls.backward


def _among(tensor: Any, tensors: Sequence[Any] | None) -> bool:
    return tensors is not None and any(t is tensor for t in tensors)


def _check_marks(ctx: FunctionCtx, outputs: list[Any]) -> None:
    for what, who, given in (
        ("save", "save_for_backward", ctx.to_save),
        ("mark", "mark_dirty", ctx.dirty_tensors),
        ("mark", "mark_non_differentiable", ctx.non_differentiable),
    ):
        for k, tensor in enumerate(given or ()):
            if not isinstance(tensor, Tensor) and not (tensor is None and what == "save"):
                kind = type(tensor).__name__
                if what == "save":
                    raise TypeError(f"save_for_backward can only save variables, but argument {k} is of type {kind}")
                raise TypeError(f"{who} only accepts variable arguments, but got {kind}")
    for tensor in ctx.dirty_tensors or ():
        if not _among(tensor, outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified "
                "inplace must all be outputs of the Function."
            )


@at_capture
def _primitive_of(cls: Any, outputs: int) -> Primitive:
    """What an application is recorded as: one primitive, with a class of nodes, for each number of outputs."""
    p = cls._primitives.get(outputs)
    if p is None:
        name = cls._backward_cls.__name__
        p = cls._primitives[outputs] = Primitive(name, None, lambda d, g: None, "", backward=name, outputs=outputs)  # type: ignore[arg-type]
        p.node_class = type(name, (FunctionNode,), {"primitive": p, "__module__": "torch.autograd.function"})
    return p


def _node_of(cls: Any, ctx: BackwardCFunction, args: tuple[Any, ...], outputs: list[Any]) -> FunctionNode | None:
    """The node of one application, its edges being those of the inputs before any was written to."""
    operands = [a if isinstance(a, Tensor) else 0 for a in args]
    arrays = [o._array if isinstance(o, Tensor) else _NOTHING for o in outputs]
    inexact = [a for a in arrays if a.dtype.kind in "fcV"]
    if not inexact:
        return None
    node: Any = record(_primitive_of(cls, len(outputs)), operands, {}, inexact)
    if node is not None:
        node.output_metas = [(a.shape, a.dtype) for a in arrays]
        node.tensors = tuple(isinstance(a, Tensor) for a in args)
        node.ctx = ctx
        ctx._node = weakref.ref(node)
    return node


_NOTHING = np.empty((), object)


def _finish(cls: Any, ctx: BackwardCFunction, args: tuple[Any, ...], outputs: list[Any], recorded: bool) -> None:
    """Give the outputs their history, and save what is to be saved."""
    node = _node_of(cls, ctx, args, outputs) if recorded else None
    several = sum(isinstance(o, Tensor) for o in outputs) > 1
    for k, out in enumerate(outputs):
        if not isinstance(out, Tensor):
            continue
        is_input, is_dirty = _among(out, args), _among(out, ctx.dirty_tensors)
        differentiable = node is not None and not _among(out, ctx.non_differentiable) and out._array.dtype.kind in "fcV"
        if not differentiable:
            if is_input and not is_dirty:
                outputs[k] = out.detach() if out.requires_grad else _alias(out)
            elif out.requires_grad and not is_input and out._base is None:
                out.detach_()
        elif is_dirty:
            outputs[k] = _rewritten(out, node, k, is_input, several)
        else:
            outputs[k] = _attached(_alias(out) if is_input else out, node, k)
    if node is not None and ctx.to_save:
        ctx._saved = tuple(None if t is None else Saved(t, node) for t in ctx.to_save)
    ctx.to_save = ()
    ctx.dirty_tensors = ctx.non_differentiable = None


def _alias(x: Tensor) -> Tensor:
    with no_grad():
        return view(PRIMITIVES["alias"], x)


def _attached(out: Tensor, node: Any, k: int) -> Tensor:
    """An output with its history."""
    if out._base is not None:
        out._attr_version = storage_of(out).version
        out._view_kind = _VIEW_OF_FUNCTION.format(k, node.short_name())
    out._grad_fn, out._output_nr, out._requires_grad = node, k, True
    return out


def _rewritten(out: Tensor, node: Any, k: int, is_input: bool, several: bool) -> Tensor:
    """An input that was written to: from now on it is the Function's output."""
    if out._requires_grad and out.grad_fn is None:
        raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
    if not is_input:
        warnings.warn(
            "Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need to pass it to "
            "mark_dirty().",
            UserWarning,
            stacklevel=4,
        )
    if out._base is not None and several:
        raise RuntimeError(
            "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than "
            "one Tensor. This is not supported by the current autograd engine. You should either make sure the input is not a "
            "view (using .clone() for example) or make your Function only return one Tensor (potentially splitting it into two "
            "Functions: one doing the inplace that returns a single Tensor and a second one that does the other operations). You "
            "can ask on the forum https://discuss.pytorch.org/ if you need help to do this change."
        )
    result = wrap(out._array.copy())
    result._grad_fn, result._output_nr, result._requires_grad = node, k, True
    return write(out, result)


class _Transposed(Function):
    """The gradient of a Function that has a `jvp`, for forward mode: its own gradient is the `jvp`; what it is does not matter."""

    @staticmethod
    def forward(ctx: Any, node: FunctionNode, *grads: Any) -> Any:
        ctx.node = node
        return tuple(
            wrap(np.zeros(shape, dtype)) if edge is not None else None for edge, (shape, dtype) in zip(node.edges, node.metas)
        )

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        node = ctx.node
        node.ctx._forward = True
        try:
            results = node.ctx._forward_cls.jvp(node.ctx, *tangents)
        finally:
            node.ctx._forward = False
        return (None, *(results if isinstance(results, tuple) else (results,)))


# -- once_differentiable ----------------------------------------------------------------------------------------------


def _refuse(d: Any, g: Any) -> Any:
    raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


_DELAYED = define("delayed_error", lambda x: x[...], (_refuse,), ("",), backward="Error")


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Declare that a `backward` cannot be differentiated: to do so is an error."""

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with no_grad():
            outputs = fn(ctx, *args)
        if not is_grad_enabled() or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        refusing = []
        for out in several:
            if out is not None:
                out = out.detach()
                out._requires_grad = True
                out = apply(_DELAYED, out)
            refusing.append(out)
        return tuple(refusing) if isinstance(outputs, tuple) else refusing[0]

    return wrapper


class InplaceFunction(Function):
    """Kept for old programs: `Function` with a flag."""

    def __init__(self, inplace: bool = False):
        self.inplace = inplace


class NestedIOFunction(Function):
    """Kept for old programs that name it; it is `Function`."""


def traceable(fn_cls: Any) -> Any:
    """Kept for old programs; it does nothing."""
    warnings.warn(
        "torch.autograd.function.traceable is deprecated and will be removed in a future version.", FutureWarning, stacklevel=2
    )
    return fn_cls


__all__ = [
    "BackwardCFunction", "Function", "FunctionCtx", "FunctionMeta", "FunctionNode", "InplaceFunction", "NestedIOFunction",
    "once_differentiable", "traceable",
]  # fmt: skip
