"""``torch._foreach_*``: one function for each tensor of a list, as optimizers of others call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES, function
from dynagraph.torch.functions.norms import vector_norm

# of the tensors alone: each has a form in place
_UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10",
    "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
# of further lists: tensors, or numbers, each with its tensor; or of one tensor or number for all
_OTHERS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, alpha=1: x.add(y, alpha=alpha), "sub": lambda x, y, alpha=1: x.sub(y, alpha=alpha),
    "mul": lambda x, y: x.mul(y), "div": lambda x, y: x.div(y), "pow": lambda x, y: x.pow(y),
    "maximum": lambda x, y: x.maximum(y) if isinstance(y, Tensor) else x.clamp(min=y),
    "minimum": lambda x, y: x.minimum(y) if isinstance(y, Tensor) else x.clamp(max=y),
    "clamp_min": lambda x, y: x.clamp(min=y), "clamp_max": lambda x, y: x.clamp(max=y), "lerp": lambda x, y, z: x.lerp(y, z),
    "addcmul": lambda x, y, z, value=1: x.addcmul(y, z, value=value),
    "addcdiv": lambda x, y, z, value=1: x.addcdiv(y, z, value=value),
}  # fmt: skip
_NOT_IN_PLACE: dict[str, Callable[..., Any]] = {
    "clone": lambda x, memory_format=None: x.clone(memory_format=memory_format), "mm": lambda x, y: x.mm(y),
    "max": lambda x: x.max(), "norm": lambda x, ord=2, dtype=None: vector_norm(x, ord, dtype=dtype),
    "powsum": lambda x, ord=2, dtype=None: x.abs().pow(ord).sum(dtype=dtype),
}  # fmt: skip
_ONLY_IN_PLACE: dict[str, Callable[..., Any]] = {
    "copy_": lambda x, src, non_blocking=False: x.copy_(src), "zero_": lambda x: x.zero_(),
}  # fmt: skip
# operands that keywords may give
_NAMED = ("other", "scalar", "exponent", "weight", "weights", "tensors1", "tensor1", "tensor2", "mat2", "src")


def _rows(tensors: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """The arguments for each tensor."""
    given = list(tensors)
    if not given:
        raise RuntimeError("Tensor list must have at least one tensor.")
    renamed = dict(kwargs)
    if "scalars" in renamed:
        renamed["value" if "tensor1" in kwargs or len(args) == 2 else "other"] = renamed.pop("scalars")
    for value in (*args, *renamed.values()):
        if isinstance(value, (list, tuple)) and len(value) != len(given):
            raise RuntimeError(f"Tensor lists must have the same number of tensors, got {len(given)} and {len(value)}")

    def item(value: Any, k: int) -> Any:
        if isinstance(value, (list, tuple)):
            return value[k]
        return value[k].item() if isinstance(value, Tensor) and value.dim() else value

    return [(x, tuple(item(a, k) for a in args), {n: item(v, k) for n, v in renamed.items()}) for k, x in enumerate(given)]


def _method(name: str) -> Callable[..., Any]:
    return lambda x: getattr(x, name)()


def _declare(name: str, compute: Callable[..., Any], forms: str) -> None:
    own = f"_foreach_{name}"

    def applied(x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        positional = tuple(value for key, value in kwargs.items() if key in _NAMED)
        return compute(x, *args, *positional, **{key: value for key, value in kwargs.items() if key not in _NAMED})

    def each(self: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if name == "pow" and not isinstance(self, (list, tuple)):  # one number to the powers of a list
            return [NAMESPACES["torch"]["pow"](self, power) for power in args[0]]
        return [applied(*row) for row in _rows(self, args, kwargs)]

    def each_in_place(self: Any, *args: Any, **kwargs: Any) -> list[Any]:
        method = getattr(Tensor, f"{name.rstrip('_')}_", None)
        for x, others, options in _rows(self, args, kwargs):
            if method is not None and not options and len(others) < 2:
                method(x, *others)
            else:
                x.copy_(applied(x, others, options))
        return list(self)

    each.__name__, each_in_place.__name__ = own, own if name.endswith("_") else f"{own}_"
    each.__doc__ = f"`{name}` of each tensor of a list, with the items of other lists, or with a number."
    each_in_place.__doc__ = f"`{name.rstrip('_')}_` of each tensor of a list, in place."
    if "new" in forms:
        function(own, method=False)(each)
    if "in place" in forms:
        function(each_in_place.__name__, method=False)(each_in_place)


for _name in _UNARY:
    _declare(_name, _method(_name), "new, in place")
for _name, _compute in _OTHERS.items():
    _declare(_name, _compute, "new, in place")
for _name, _compute in _NOT_IN_PLACE.items():
    _declare(_name, _compute, "new")
for _name, _compute in _ONLY_IN_PLACE.items():
    _declare(_name, _compute, "in place")

__all__: list[str] = []
