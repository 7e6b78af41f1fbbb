"""How functions are declared: under which names they are found, their in-place and ``out=`` forms, promotion and checks.

A function is written once, out of place, over tensors:

    @function(inplace=True, out=True)
    def lerp(input, end, weight): ...

which makes ``torch.lerp``, ``Tensor.lerp``, ``Tensor.lerp_`` and ``torch.lerp(..., out=)``.  What it computes is a primitive
(`apply`, `view`), whose gradient autograd records, or other functions, whose gradients follow.
"""

from __future__ import annotations

import functools
import math
import sys
import types
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dynagraph.markers import at_capture, is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import is_on_gpu, put_beside
from dynagraph.torch.core.autocast import autocasting
from dynagraph.torch.core.dtypes import Size, dtype
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.large import LARGE, writing
from dynagraph.torch.core.primitives import Primitive
from dynagraph.torch.core.tensor import (
    CAST,
    Tensor,
    apply,
    check_cast,
    check_overlap,
    check_write,
    operand_of_write,
    quiet,
    storage_of,
    wrap,
    write,
    written,
)

NAMESPACES: dict[str, dict[str, Any]] = {}  # "torch", "linalg", "fft", "special", "functional": name -> function
Number = bool | int | float | complex
NUMBERS = (bool, int, float, complex, np.number, np.bool_)


def function(
    name: str = "",
    *,
    method: bool = True,
    inplace: bool = False,
    out: bool | str = False,
    namespace: str = "torch",
    aliases: Iterable[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function: where it is found, and which further forms it has.  `namespace` "" is that of Tensor's methods only.

    `out`: whether there is a form with ``out=``, whose dtype the result is cast to.  With "computes" it is the dtype of the
    computation, as if given as `dtype`; with "floats" only where it is one of floating point; with "same" it must be the result's.
    """

    def declare(written_once: Callable[..., Any]) -> Callable[..., Any]:
        own = name or written_once.__name__
        plain = with_numpy_names(written_once)
        named = autocasting(plain, own, namespace)
        for each in (own, *aliases):
            public = with_out(named, each, out if isinstance(out, str) else "") if out else named
            if namespace:
                NAMESPACES.setdefault(namespace, {})[each] = public
            if method:
                setattr(Tensor, each, named)
            if inplace:
                changing = in_place(plain, each)
                setattr(Tensor, f"{each}_", changing)
                if namespace in ("torch", "functional"):
                    NAMESPACES[namespace][f"{each}_"] = changing
        return written_once if named is plain else named

    return declare


def publish(module: dict[str, Any], namespace: str) -> None:
    """Put the functions of a namespace into the globals of a module, and name them for pickles (`name_for_pickles`)."""
    module.update(NAMESPACES[namespace])
    name_for_pickles(module["__name__"], "", NAMESPACES[namespace])


def name_for_pickles(module: str, prefix: str, functions: Mapping[str, Any]) -> None:
    """Pickles of functions are names: those whose own leads elsewhere, as of wrapped forms, are named by where they are."""
    for name, value in list(functions.items()):
        if isinstance(value, types.FunctionType) and not _is_found(value):
            value.__module__, value.__qualname__ = module, prefix + name


def _is_found(value: types.FunctionType) -> bool:
    """Whether a function is where its module and qualified name say."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def with_numpy_names(compute: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which takes NumPy's names of its arguments too: `axis` for `dim`, `keepdims` for `keepdim`."""
    code = compute.__code__
    taken = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    names = {theirs: own for theirs, own in _NUMPY_NAMES.items() if own in taken and theirs not in taken}
    if not names:
        return compute

    @functools.wraps(compute)
    def named(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not names.keys().isdisjoint(kwargs):
            kwargs = {name if names.get(name, name) in kwargs else names[name]: value for name, value in kwargs.items()}
        return compute(*args, **kwargs)

    return named


def in_place(compute: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """The form that stores its result in its first argument: ``x.add_(y)``."""
    ufunc = _WRITTEN_ONTO.get(name)

    @functools.wraps(compute)
    def changing(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        others = (*args, *kwargs.values())
        check_write(self, others=others)
        check_overlap(self, others)
        if ufunc is not None and not is_compiling() and _is_written_at_once(self, args, kwargs):
            other = args[0]._array if isinstance(args[0], Tensor) else float(args[0])
            scale = kwargs.get("alpha", 1)
            quiet(writing(ufunc, scale != 1), (self._array, other) if scale == 1 else (self._array, other, float(scale)), {})
            written(self)
            return self
        result = compute(operand_of_write(self, others), *args, **kwargs)
        return write(self, result)

    changing.__name__ = changing.__qualname__ = f"{name}_"
    return changing


# in-place operations of large tensors that need no memory for their result
_WRITTEN_ONTO = {
    "add": np.add, "sub": np.subtract, "subtract": np.subtract, "mul": np.multiply, "multiply": np.multiply, "div": np.divide,
    "divide": np.divide,
}  # fmt: skip


def _is_written_at_once(x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether ``x`` is large and takes what is computed of it and another operand as it is, and nothing is recorded."""
    array = x._array
    if type(array) is not np.ndarray or array.size < LARGE or array.dtype.char not in "fd" or not array.flags.writeable:
        return False
    if len(args) != 1 or not kwargs.keys() <= {"alpha"} or not _is_short(kwargs.get("alpha", 1)):
        return False
    other = args[0]
    if isinstance(other, Tensor):
        theirs = other._array
        if type(theirs) is not np.ndarray or theirs.dtype != array.dtype or other.is_sparse:
            return False
        if theirs.shape != array.shape and np.broadcast_shapes(theirs.shape, array.shape) != array.shape:
            return False
        return not mode.grad or not (x.requires_grad or other.requires_grad)
    return _is_short(other) and kwargs.get("alpha", 1) == 1 and not (mode.grad and x.requires_grad)


def _is_short(number: Any) -> bool:
    """Whether it is a number that a float is as well."""
    return type(number) is float or (type(number) is int and abs(number) < 1 << 53)


def with_out(compute: Callable[..., Any], name: str, rule: str = "") -> Callable[..., Any]:
    """The form that can store its results in tensors that are given: ``torch.add(x, y, out=z)``; `rule` as `function` has it."""

    plain = getattr(compute, "without_autocast", compute)

    @functools.wraps(compute)
    def public(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            return compute(*args, **kwargs)
        targets = (out,) if isinstance(out, Tensor) else tuple(out)
        if mode.grad and any(isinstance(a, Tensor) and a.requires_grad for a in (*args, *kwargs.values(), *targets)):
            raise RuntimeError(
                f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
                "requires grad."
            )
        if rule in ("computes", "floats"):
            wanted = kwargs.get("dtype")
            if wanted is not None:
                check_out_dtype(out, wanted)
            elif rule == "computes" or all(t._array.dtype.kind in "fcV" for t in (out, *args[:1])):
                kwargs["dtype"] = out.dtype
        results = plain(*args, **kwargs)
        if rule == "same":
            check_out_dtype(out, results.dtype)
        several = (results,) if isinstance(results, Tensor) else tuple(results)
        for target, result in zip(targets, several, strict=True):
            store_out(target, result)
        return out if isinstance(results, Tensor) else type(results)(*targets) if hasattr(results, "_fields") else targets

    public.__name__ = public.__qualname__ = name
    return public


_IN_C = {
    "bool": "bool", "uint8": "unsigned char", "int8": "signed char", "int16": "short int", "int32": "int", "int64": "long int",
    "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip


def check_out_dtype(target: Tensor, wanted: dtype) -> None:
    """RuntimeError where a tensor that is given for a result has not its dtype."""
    if target.dtype is not wanted:
        names = [_IN_C.get(d.name, d.name) for d in (wanted, target.dtype)]
        raise RuntimeError(f"Expected out tensor to have dtype {names[0]}, but got {names[1]} instead")


def store_out(target: Tensor, result: Tensor) -> None:
    """Store a result in a tensor that was given for it; it takes the result's shape."""
    check_cast(result.dtype, target.dtype)
    if is_on_gpu(result._array) and type(target._array) is np.ndarray:
        raise RuntimeError(f"Expected out tensor to have device {result.device}, but got {target.device} instead")
    values = put_beside(result._array, target._array)
    if target._array.shape != values.shape:
        if target._array.size:
            warnings.warn(
                f"An output with one or more elements was resized since it had shape {list(target.shape)}, which does not match "
                f"the required output shape {list(result.shape)}. This behavior is deprecated, and in a future PyTorch release "
                "outputs will not be resized unless they have zero elements. You can explicitly reuse an out tensor t by resizing "
                "it, inplace, to zero elements with t.resize_(0).",
                UserWarning,
                stacklevel=4,
            )
        target._array = np.empty_like(values, target._array.dtype)
        storage_of(target).array = target._array
    np.copyto(target._array, values, casting="unsafe")
    written(target)


def result_type_of(name: str, *fields: str) -> Any:
    """The named tuple that a function with several results gives: ``torch.return_types.max``."""
    made = namedtuple(name, fields)  # type: ignore[misc]
    made.__module__ = "torch.return_types"
    made.__repr__ = _shown  # type: ignore[method-assign]
    NAMESPACES.setdefault("return_types", {})[name] = made
    return made


def _shown(results: Any) -> str:
    lines = ",\n".join(f"{name}={value!r}" for name, value in zip(results._fields, results))
    return f"torch.return_types.{type(results).__name__}(\n{lines})"


# -- operands ---------------------------------------------------------------------------------------------------------


def check_tensor(value: Any, who: str, argument: str, position: int | None = 1) -> Tensor:
    """TypeError where an argument must be a tensor and is none."""
    if not isinstance(value, Tensor):
        at = "" if position is None else f" (position {position})"
        raise TypeError(f"{who}(): argument '{argument}'{at} must be Tensor, not {type(value).__name__}")
    return value


def cast(x: Tensor, target: dtype) -> Tensor:
    """As another dtype; the tensor itself where it has it."""
    wanted = target.numpy
    return x if x._array.dtype == wanted else apply(CAST, x, dtype=wanted)


def floating(x: Tensor, who: str = "") -> Tensor:
    """The tensor; one of integers or bools as the default dtype."""
    return x if x._array.dtype.kind in "fcV" else cast(x, dtypes.get_default_dtype())


def tensor_of(value: Any, like: Tensor) -> Tensor:
    """A number as a tensor without dimensions, of its own dtype, beside another tensor."""
    return value if isinstance(value, Tensor) else wrap(put_beside(np.asarray(value, dtypes.of_number(value).numpy), like._array))


def promoted(who: str, *operands: Any) -> tuple[Any, ...]:
    """Tensors and numbers as operands of one dtype, by PyTorch's rules.  Numbers that change nothing stay numbers."""
    first = second = None
    for operand in operands:
        if isinstance(operand, Tensor):
            if first is None:
                first = operand._array.dtype
            elif operand._array.dtype is not first:
                second = operand
        elif not isinstance(operand, NUMBERS):
            raise TypeError(f"{who}(): argument must be Tensor or Number, not {type(operand).__name__}")
    common: dtype | None = None
    if first is not None and second is None and all(isinstance(o, Tensor) or _adds_nothing(o, first) for o in operands):
        if first.kind in "iuV":
            return tuple(o if isinstance(o, Tensor) else wrapped_number(o, first) for o in operands)
        return operands
    common = dtypes.result_dtype(operands)
    wanted = common.numpy
    return tuple(cast(o, common) if isinstance(o, Tensor) else wrapped_number(o, wanted) for o in operands)


def _adds_nothing(number: Any, given: np.dtype) -> bool:
    """Whether a number is of no higher category than a dtype."""
    kind = type(number)
    if kind is bool:
        return True
    if kind is int:
        return given.kind != "b"
    if kind is float:
        return given.kind in "fcV"
    return False


def wrapped_number(number: Any, given: np.dtype) -> Any:
    """A number in a dtype, as C converts it: integers wrap."""
    kind = given.kind
    if kind in "iu" and not isinstance(number, (float, np.floating)):
        bits = 8 * given.itemsize
        value = int(number) & ((1 << bits) - 1)
        return given.type(value - (1 << bits) if kind == "i" and value >> (bits - 1) else value)
    if kind == "V":
        return np.asarray(number).astype(given)[()]
    return given.type(number)


def of_one_dtype(who: str, *tensors: Tensor) -> None:
    """RuntimeError where tensors that must have one dtype have several."""
    first = tensors[0]._array.dtype
    for other in tensors[1:]:
        if other._array.dtype != first:
            names = [dtypes.scalar_name(t.dtype) for t in (tensors[0], other)]
            raise RuntimeError(f"{who}: expected scalar type {names[0]} but found {names[1]}")


def pointwise(p: Primitive, who: str, *operands: Any, **attrs: Any) -> Tensor:
    """Apply a pointwise primitive; RuntimeError where shapes do not broadcast."""
    try:
        return apply(p, *operands, **attrs)
    except ValueError:
        check_broadcast(*operands)
        raise
    except TypeError:
        moved = on_one_device(operands)
        if moved is operands:
            raise
        return apply(p, *moved, **attrs)


def on_one_device(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands where one of them is on a GPU: tensors without dimensions are moved there; RuntimeError of others elsewhere."""
    where = next((o.device for o in operands if isinstance(o, Tensor) and o._array.ndim and is_on_gpu(o._array)), None)
    where = where or next((o.device for o in operands if isinstance(o, Tensor) and is_on_gpu(o._array)), None)
    others = [o for o in operands if isinstance(o, Tensor) and o.device != where]
    if where is None or not others:
        return operands
    for other in others:
        if other._array.ndim:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {where} and {other.device}!"
            )
    return tuple(o.to(where) if isinstance(o, Tensor) else o for o in operands)  # type: ignore[attr-defined]


def check_broadcast(*operands: Any) -> tuple[int, ...]:
    """The shape that operands broadcast to; RuntimeError, as PyTorch words it, where they do not."""
    shapes = [o._array.shape for o in operands if isinstance(o, Tensor)]
    result = shapes[0]
    for shape in shapes[1:]:
        rank = max(len(result), len(shape))
        a, b = ((1,) * (rank - len(s)) + tuple(s) for s in (result, shape))
        for k in range(rank - 1, -1, -1):
            if a[k] != b[k] and 1 not in (a[k], b[k]):
                raise RuntimeError(
                    f"The size of tensor a ({a[k]}) must match the size of tensor b ({b[k]}) at non-singleton dimension {k}"
                )
        result = tuple(m if n == 1 else n for n, m in zip(a, b))
    return result


# -- dimensions -------------------------------------------------------------------------------------------------------


@at_capture
def dim_of(dim: Any, ndim: int) -> int:
    """A dimension counted from the front; IndexError where there is none.  Without dimensions there are 0 and -1."""
    rank = ndim or 1
    if isinstance(dim, Tensor):
        dim = int(dim._array)
    if not isinstance(dim, (int, np.integer)) or isinstance(dim, bool):
        raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}")
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return int(dim) + rank if dim < 0 else int(dim)


def as_sequence(value: Any) -> tuple[Any, ...]:
    """One integer, which may be NumPy's or a tensor without dimensions, or a sequence of them, as a tuple."""
    if isinstance(value, (int, np.integer)):
        return (value,)
    if isinstance(value, Tensor) and not value._array.ndim:
        return (int(value._array),)
    return tuple(value)


def integer(value: Any) -> Any:
    """A number of things that may be given as NumPy's integer or a tensor without dimensions, as Python's; others as they are."""
    if type(value) is int:
        return value
    if isinstance(value, Tensor) and not value._array.ndim and value._array.dtype.kind in "iu":
        return int(value._array)
    return int(value) if isinstance(value, np.integer) else value


def dims_of(dims: Any, ndim: int) -> tuple[int, ...]:
    """Dimensions counted from the front, sorted; None, or an empty sequence, is all of them."""
    if dims is None:
        return tuple(range(ndim))
    given = as_sequence(dims)
    if not given:
        return tuple(range(ndim))
    found = [dim_of(d, ndim) for d in given]
    if len(set(found)) != len(found):
        repeated = next(d for d in found if found.count(d) > 1)
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return tuple(sorted(found)) if ndim else ()


@at_capture
def sizes_of(args: Sequence[Any], who: str = "size") -> tuple[int, ...]:
    """Sizes that were given as one sequence, or as several arguments."""
    if len(args) == 1 and isinstance(args[0], (tuple, list, Size)):
        args = args[0]
    found = []
    for value in args:
        if isinstance(value, Tensor):
            value = value._array.item()
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{who}(): argument must be a tuple of ints, but found element of type {type(value).__name__}")
        found.append(int(value))
    return tuple(found)


def fitting_number(value: Any, target: np.dtype, kind: dtypes.dtype, name: str = "") -> Any:
    """A number that NumPy takes for a dtype; RuntimeError where it is beyond it.  Unsigned dtypes count negatives from their end.

    All is comparisons of Python's numbers, which are guards where a captured number changes.
    """
    if isinstance(value, np.generic):
        value = value.item()
    real = value.real if isinstance(value, complex) and target.kind != "c" else value
    if target.kind != "c" and isinstance(value, complex) and value.imag != 0:
        fits = False
    elif target.kind in "iu":
        bounds = np.iinfo(target)
        high = int(bounds.max)
        fits = (-high if target.kind == "u" else int(bounds.min)) - 1 < real < high + 1
        if fits:
            whole = real if isinstance(real, int) else int(real)
            return whole + high + 1 if target.kind == "u" and whole < 0 else whole
    else:
        most = dtypes.finfo(kind).max if target.kind in "fV" else math.inf  # of complex dtypes nothing is compared
        fits = most == math.inf or not (most < real < math.inf or -math.inf < real < -most)
    if not fits:
        name = name or _C_NAMES.get(kind.name, kind.name)
        raise RuntimeError(f"value cannot be converted to type {name} without overflow")
    return real


def number_as(value: Any, target: np.dtype, kind: dtypes.dtype) -> Any:
    """A number in a dtype; RuntimeError where it is beyond it."""
    return np.asarray(fitting_number(value, target, kind)).astype(target)[()]


_C_NAMES = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int32": "int",
    "int64": "int64_t", "int8": "int8_t", "int16": "int16_t", "uint8": "uint8_t",
}  # fmt: skip


def plain_forms(*names: str) -> list[Any]:
    """Functions that have been declared, without their ``out=`` form."""
    return [getattr(NAMESPACES["torch"][name], "__wrapped__", NAMESPACES["torch"][name]) for name in names]


__all__ = [
    "NAMESPACES", "NUMBERS", "cast", "check_broadcast", "check_tensor", "dim_of", "dims_of", "fitting_number", "floating",
    "function", "in_place", "number_as", "of_one_dtype", "plain_forms", "pointwise", "promoted", "result_type_of", "sizes_of",
    "store_out", "tensor_of", "with_out", "wrapped_number",
]  # fmt: skip
