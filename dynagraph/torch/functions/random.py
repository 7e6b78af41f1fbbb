"""Random tensors, and tensors filled with random numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import devices, dtypes
from dynagraph.torch.core.arrays import any_wrong, library_of_array, put_beside
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.generator import Generator, generator_of
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.layouts import strided
from dynagraph.torch.core.primitives import Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply, check_write, made, operand_of_write, wrap, write
from dynagraph.torch.functions.common import NAMESPACES, check_broadcast, check_tensor, function, integer, sizes_of, store_out
from dynagraph.torch.functions.creation import finish
from dynagraph.torch.functions.pointwise_primitives import dense_copy
from dynagraph.torch.functions.shapes import contiguous_format, preserve_format

_DOUBLE = np.dtype(np.float64)
Draw = Callable[[Generator, tuple[int, ...], np.dtype], Any]


def generator_for(given: Any, where: devices.device) -> Generator:
    """The generator that was given, or the default one of a device."""
    if given is None:
        return generator_of(where)
    if not isinstance(given, Generator):
        raise TypeError(f"argument 'generator' must be torch.Generator, not {type(given).__name__}")
    if given.device.type != where.type:
        raise RuntimeError(f"Expected a '{where.type}' device type for generator but found '{given.device.type}'")
    return given


# -- numbers of a shape and dtype -------------------------------------------------------------------------------------


def _floating_only(dtype: np.dtype, what: str) -> None:
    if dtype.kind not in "fV":
        raise NotImplementedError(f"\"{what}\" not implemented for '{dtypes.scalar_name(dtypes.of_numpy(dtype))}'")


def _uniform(generator: Generator, shape: tuple[int, ...], dtype: np.dtype, low: float = 0.0, high: float = 1.0) -> Any:
    if dtype.kind == "c":
        parts = generator.uniform((*shape, 2), np.dtype(f"f{dtype.itemsize // 2}"), low, high)
        return parts.view(dtype).reshape(shape)
    _floating_only(dtype, "check_uniform_bounds")
    return generator.uniform(shape, dtype, low, high)


def _normal(generator: Generator, shape: tuple[int, ...], dtype: np.dtype, mean: Any = 0.0, std: Any = 1.0) -> Any:
    if dtype.kind == "c":  # the parts have half of the variance each
        parts = generator.normal((*shape, 2), np.dtype(f"f{dtype.itemsize // 2}"), 0.0, std / math.sqrt(2))
        found = parts.view(dtype).reshape(shape)
        return found if mean == 0 else found + dtype.type(mean)
    _floating_only(dtype, "normal_kernel_cpu")
    return generator.normal(shape, dtype, float(mean), float(std))


def _check_range(low: int, high: int, dtype: np.dtype) -> None:
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    least, most = _limits(dtype)
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RuntimeError(f"{name} is out of bounds for {_C_NAMES.get(dtype.name, dtype.name)}")


_C_NAMES = {
    "bool": "bool", "uint8": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int", "int64": "int64_t",
    "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
}  # fmt: skip
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38, "float64": sys.float_info.max}
_TINY = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": sys.float_info.min}
_MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _limits(dtype: np.dtype) -> tuple[int, int]:
    """The least and the largest integer that a dtype has a place for."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    if dtype.kind == "c":
        raise NotImplementedError(f"\"random_from_to\" not implemented for '{dtypes.scalar_name(dtypes.of_numpy(dtype))}'")
    most = int(_LARGEST[dtype.name])
    return max(-most, -(1 << 63)), min(most, (1 << 63) - 1)


def _integers(generator: Generator, shape: tuple[int, ...], dtype: np.dtype, low: int, high: int) -> Any:
    _check_range(low, high, dtype)
    drawn = generator.integers(shape, high - low)
    return (drawn + np.uint64(low & 0xFFFFFFFFFFFFFFFF)).astype(np.int64).astype(dtype)  # sum and cast wrap as they should


def _any_integer(generator: Generator, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Integers from 0 to the largest of the dtype, or to the last behind which floats have gaps."""
    name = dtype.name
    limit = (1 << _MANTISSA[name]) + 1 if name in _MANTISSA else _limits(dtype)[1] + 1
    return generator.integers_of_kind(shape, limit, dtype.itemsize == 8).astype(dtype)


# -- new tensors ------------------------------------------------------------------------------------------------------


def _options(
    who: str, dtype: Any, layout: Any, device: Any, default: DType | None = None
) -> tuple[np.dtype, devices.device]:
    if layout is not None and layout is not strided:
        raise RuntimeError(f"{who}(): random tensors are strided, not {layout}")
    if dtype is not None and not isinstance(dtype, DType):
        raise TypeError(f"{who}(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    where = devices.get_default_device() if device is None else devices.device(device)
    return (dtype or default or dtypes.get_default_dtype()).numpy, where


def _fresh(
    who: str, shape: tuple[int, ...], draw: Draw, *, generator: Any = None, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False, default: DType | None = None,
) -> Tensor:  # fmt: skip
    """A new tensor of what `draw` gives, or `out` with it."""
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    if out is not None:
        if dtype is not None and dtype is not out.dtype:
            raise RuntimeError(
                f"dtype {dtype} does not match dtype of out parameter ({out.dtype})"
            )
        store_out(out, made(draw(generator_for(generator, out.device), shape, out._array.dtype)))
        if requires_grad:
            out.requires_grad = True
        return out
    numpy_dtype, where = _options(who, dtype, layout, device, default)
    return finish(draw(generator_for(generator, where), shape, numpy_dtype), where, requires_grad, pin_memory)


def _sized(name: str, draw: Draw) -> None:
    def compute(
        *size: Any, generator: Generator | None = None, names: None = None, out: Tensor | None = None, dtype: DType | None = None,
        layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        if names is not None:
            raise RuntimeError(f"{name}(): named tensors are not supported")
        return _fresh(
            name, sizes_of(size, name), draw, generator=generator, out=out, dtype=dtype, layout=layout, device=device,
            requires_grad=requires_grad, pin_memory=pin_memory,
        )  # fmt: skip

    def public(*args: Any, **kwargs: Any) -> Tensor:
        if "size" in kwargs:
            args = (kwargs.pop("size"),)
        if not args:
            raise TypeError(f"{name}() received an invalid combination of arguments - got (), but expected a size")
        return compute(*args, **kwargs)

    public.__name__ = public.__qualname__ = name
    public.__doc__ = f"``torch.{name}``: random numbers of a shape, given as sizes or as one sequence."
    function(name, method=False)(public)


_sized("rand", _uniform)
_sized("randn", _normal)


@function(method=False)
def randint(
    low: Any = None, high: Any = None, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DType | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Integers from `low` to ``high - 1``; ``randint(high, size)`` begins at 0."""
    if low is None:  # randint(high=5, size=(2,))
        if high is None:
            raise TypeError('randint() missing 1 required positional arguments: "high"')
        low = 0
    if size is None:
        low, high, size = (0, low, high) if high is not None else (0, low, None)
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"randint(): argument 'size' must be tuple of ints, not {type(size).__name__}")
    first, last = int(low), int(high)
    return _fresh(
        "randint", sizes_of(size, "randint"), lambda g, shape, dtype: _integers(g, shape, dtype, first, last), generator=generator,
        out=out, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad, pin_memory=pin_memory,
        default=dtypes.int64,
    )  # fmt: skip


@function(method=False)
def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None, dtype: DType | None = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The numbers from 0 to ``n - 1`` in random order."""
    n = integer(n)
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")

    def draw(g: Generator, shape: tuple[int, ...], numpy_dtype: np.dtype) -> Any:
        exact = 1 << _MANTISSA[numpy_dtype.name] if numpy_dtype.name in _MANTISSA else _limits(numpy_dtype)[1]
        if n - 1 > exact:
            raise RuntimeError(f"n is too large to generate a random permutation for type {_name(numpy_dtype)}")
        return g.permutation(n).astype(numpy_dtype, copy=False)

    return _fresh(
        "randperm", (int(n),), draw, generator=generator, out=out, dtype=dtype, layout=layout, device=device,
        requires_grad=requires_grad, pin_memory=pin_memory, default=dtypes.int64,
    )  # fmt: skip


def _like(name: str, draw: Callable[..., Any], arguments: tuple[str, ...] = ()) -> None:
    def compute(
        input: Tensor, *numbers: Any, dtype: DType | None = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = preserve_format,
        generator: Generator | None = None, **named: Any,
    ) -> Tensor:  # fmt: skip
        x = check_tensor(input, name, "input")
        numpy_dtype, where = _options(name, dtype, layout, x.device if device is None else device, x.dtype)
        given = dict(zip(arguments, numbers)) | named
        if len(numbers) > len(arguments) or given.keys() - set(arguments):
            raise TypeError(f"{name}() received an invalid combination of arguments")
        model = dense_copy(x._array) if 0 in x._array.strides else x._array
        target = np.empty_like(model, dtype=numpy_dtype, order="C" if memory_format is contiguous_format else "K")
        result = finish(target, where)
        if memory_format not in (contiguous_format, preserve_format):
            result = result.contiguous(memory_format=memory_format)
        source = generator_for(generator, where)
        _put(result._array, lambda shape: draw(source, shape, numpy_dtype, **given))
        result.requires_grad = requires_grad
        return result

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``: random numbers of another tensor's shape, dtype and device."
    function(name, method=False)(compute)


def _integers_between(generator: Generator, shape: tuple[int, ...], dtype: np.dtype, low: Any = None, high: Any = None) -> Any:
    if high is None:
        low, high = 0, low
    return _integers(generator, shape, dtype, int(low or 0), int(high))


_like("rand_like", _uniform)
_like("randn_like", _normal)
_like("randint_like", _integers_between, ("low", "high"))


# -- tensors that are filled ------------------------------------------------------------------------------------------


def _put(target: Any, draw: Callable[[tuple[int, ...]], Any]) -> None:
    """Fill an array with numbers: in the order in which its elements lie in memory."""
    axes = sorted(range(target.ndim), key=lambda k: (-abs(target.strides[k]), k))
    ordered = target if axes == list(range(target.ndim)) else target.transpose(axes)
    ordered[...] = draw(ordered.shape)


def _zeros(d: Any, g: Any) -> Any:
    return g.full(0, g.shape)


def _none(d: Any, g: Any) -> None:
    return None


def _underivable(name: str) -> Callable[[Any, Any], Any]:
    def refuse(d: Any, g: Any) -> Any:
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    return refuse


def _drawn(name: str, backward: str) -> Primitive:
    """The primitive of drawing: its first operand becomes the second, and has no gradient."""
    return define(name, lambda x, drawn: drawn, (_zeros, _none), ("", ""), backward=backward)


def _filling(
    name: str, backward: str, arguments: tuple[tuple[str, Any], ...], check: Callable[..., None], draw: Callable[..., Any]
) -> None:
    """Declare ``x.name_(...)``: `arguments` are names and defaults, `check` and `draw` take their values."""
    primitive = _drawn(f"{name}_fill", backward)
    names = [argument for argument, _ in arguments]

    def compute(self: Tensor, *values: Any, generator: Generator | None = None, **named: Any) -> Tensor:
        given = dict(arguments) | dict(zip(names, values)) | named
        if len(values) > len(names) or len(given) > len(names):
            raise TypeError(f"{name}_() received an invalid combination of arguments")
        numbers = [v.item() if isinstance(v, Tensor) else v for v in given.values()]
        dtype = self._array.dtype
        check(dtype, *numbers)
        check_write(self)
        source = generator_for(generator, self.device)
        array = self._array
        if type(array) is np.ndarray and array.flags.c_contiguous:
            drawn = draw(source, array.shape, dtype, True, *numbers)
        else:
            drawn = np.empty_like(array)
            _put(drawn, lambda shape: draw(source, shape, dtype, array.flags.c_contiguous, *numbers))
        if not self.requires_grad:
            return write(self, wrap(drawn))
        return write(self, apply(primitive, operand_of_write(self, ()), wrap(put_beside(drawn, array))))

    compute.__name__ = compute.__qualname__ = f"{name}_"
    compute.__doc__ = f"``Tensor.{name}_``: fill with random numbers."
    setattr(Tensor, f"{name}_", compute)


def _name(dtype: np.dtype) -> str:
    return dtypes.scalar_name(dtypes.of_numpy(dtype))


def _check_uniform(dtype: np.dtype, low: float, high: float) -> None:
    if dtype.kind != "c":
        _floating_only(dtype, "check_uniform_bounds")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if dtype.itemsize == 4:
        largest = _LARGEST["float32"]  # NumPy takes a microsecond to name a dtype
    else:
        largest = _LARGEST[f"float{4 * dtype.itemsize}" if dtype.kind == "c" else dtype.name]
    for which, value in (("from", low), ("to", high)):
        if not -largest <= value <= largest:
            raise RuntimeError(f"{which} is out of bounds for {_C_NAMES[dtype.name]}")
    if high - low > largest:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{_name(dtype)}>::max(), but found to={high:g} and from={low:g} which "
            "result in to-from to exceed the limit"
        )


def _check_normal(dtype: np.dtype, mean: float, std: float) -> None:
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    if dtype.kind != "c":
        _floating_only(dtype, "normal_kernel_cpu")


def _check_exponential(dtype: np.dtype, rate: float) -> None:
    if dtype.kind not in "fV":
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you specified "
            + _name(dtype)
        )
    if rate <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate:g}")


def _check_geometric(dtype: np.dtype, p: float) -> None:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    if dtype.kind in "bc":
        raise NotImplementedError(f"\"geometric_kernel_cpu\" not implemented for '{_name(dtype)}'")


def _check_cauchy(dtype: np.dtype, median: float, sigma: float) -> None:
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    if dtype.kind not in "fV":
        raise RuntimeError(
            "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you specified "
            + _name(dtype)
        )


def _check_log_normal(dtype: np.dtype, mean: float, std: float) -> None:
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    _floating_only(dtype, "log_normal_cpu")


def _one_normal(g: Generator, shape: Any, dtype: np.dtype, is_contiguous: bool, mean: float, std: float) -> Any:
    if is_contiguous or dtype.kind == "c":
        return _normal(g, shape, dtype, mean, std)
    return (g.normals_one_by_one(shape) * std + mean).astype(dtype)


def _cauchy(g: Generator, shape: Any, dtype: np.dtype, _: bool, median: float, sigma: float) -> Any:
    return (np.tan(math.pi * (g.uniform(shape, _DOUBLE) - 0.5)) * sigma + median).astype(dtype)


def exponential(g: Generator, shape: tuple[int, ...], dtype: np.dtype, rate: float = 1.0) -> Any:
    """Exponential numbers, which are above zero."""
    found = (np.log1p(-g.uniform(shape, _DOUBLE)) * (-1.0 / rate)).astype(dtype)
    return np.maximum(found, dtype.type(_TINY[dtype.name]))


def _geometric(g: Generator, shape: Any, dtype: np.dtype, _: bool, p: float) -> Any:
    drawn = np.ceil(np.log(np.maximum(g.uniform(shape, _DOUBLE), 2.0**-54)) / math.log1p(-p))
    return np.maximum(drawn, 1.0).astype(dtype)


_filling("uniform", "UniformBackward0", (("from", 0.0), ("to", 1.0)), _check_uniform,
         lambda g, shape, dtype, _, low, high: _uniform(g, shape, dtype, float(low), float(high)))  # fmt: skip
_filling("normal", "NormalBackward0", (("mean", 0.0), ("std", 1.0)), _check_normal, _one_normal)
_filling("exponential", "ExponentialBackward0", (("lambd", 1.0),), _check_exponential,
         lambda g, shape, dtype, _, rate: exponential(g, shape, dtype, float(rate)))  # fmt: skip
_filling("geometric", "GeometricBackward0", (("p", None),), _check_geometric, _geometric)
_filling("cauchy", "CauchyBackward0", (("median", 0.0), ("sigma", 1.0)), _check_cauchy, _cauchy)
_filling("log_normal", "LogNormalBackward0", (("mean", 1.0), ("std", 2.0)), _check_log_normal,
         lambda g, shape, dtype, _, mean, std: np.exp(g.normals_one_by_one(shape) * std + mean).astype(dtype))  # fmt: skip


def _check_integers(dtype: np.dtype, *_: Any) -> None:
    if dtype.kind == "c":
        raise NotImplementedError(f"\"random_\" not implemented for '{_name(dtype)}'")


def _any_or_between(g: Generator, shape: Any, dtype: np.dtype, _: bool, low: Any, high: Any) -> Any:
    if low is None:
        return _any_integer(g, shape, dtype)
    first = 0 if high is _ONE else int(low)
    last = low if high is _ONE else high
    if last is None:  # up to the largest; of int64 from the least: all 64 bits
        last = _limits(dtype)[1] + 1
    return _integers(g, shape, dtype, first, int(last))


_ONE = object()  # `random_(to)` was called with one number
_filling("random", "RandomBackward0", (("from", None), ("to", _ONE)), _check_integers, _any_or_between)


# -- by probabilities -------------------------------------------------------------------------------------------------

BERNOULLI = _drawn("bernoulli", "BernoulliBackward0")
BERNOULLI_OF = define(
    "bernoulli_of", lambda x, drawn: drawn, (_underivable("bernoulli"), _none), ("", ""), backward="NotImplemented"
)
BERNOULLI_FILL = _drawn("bernoulli_fill", "BernoulliBackward1")
POISSON = _drawn("poisson", "PoissonBackward0")
_NOTHING = ("", "", "")
NORMAL = define(
    "normal_of_tensors", lambda mean, std, drawn: drawn, (_zeros, _zeros, _none), _NOTHING, backward="NormalBackward3"
)
BINOMIAL = define(
    "binomial", lambda count, p, drawn: drawn, (_underivable("binomial"), _underivable("binomial"), _none), _NOTHING,
    backward="NotImplemented",
)  # fmt: skip


def _check_probability(p: Any) -> None:
    if isinstance(p, (int, float)):
        if not 0 <= p <= 1:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    elif not ((p >= 0) & (p <= 1)).all():
        raise RuntimeError(
            "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be improved?  If so, please "
            "report an enhancement request to PyTorch.)"
        )


@function(method=True)
def bernoulli(input: Tensor, p: Any = None, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor:
    """Ones with the probabilities that the tensor holds, or with the probability `p`, else zeros."""
    x = check_tensor(input, "bernoulli", "input")
    source = generator_for(generator, x.device)
    if p is None:
        _floating_only(x._array.dtype, "bernoulli_tensor_cpu_p_")
        _check_probability(x._array)
        drawn = source.mask(x._array.shape, x._array)
    else:
        _check_probability(p)
        drawn = source.mask(x._array.shape, float(p))
    values = drawn.astype(x._array.dtype)
    if out is not None:
        store_out(out, made(values))
        return out
    return apply(BERNOULLI if p is None else BERNOULLI_OF, x, wrap(values))


def _bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with ones, with the probability `p` (a number, or a tensor that broadcasts to this), and zeros."""
    check_write(self)
    source = generator_for(generator, self.device)
    values = np.empty_like(self._array)
    if isinstance(p, Tensor):
        _floating_only(p._array.dtype, "bernoulli_tensor_cpu_self_")
        _check_probability(p._array)
        values[...] = source.mask(values.shape, np.broadcast_to(p._array, values.shape))
    else:
        _check_probability(p)
        _put(values, lambda shape: source.mask(shape, float(p)))
    return write(self, apply(BERNOULLI_FILL, operand_of_write(self, (p,)), wrap(values)))


Tensor.bernoulli_ = _bernoulli_


@function(method=False)
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DType | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normal numbers: their means and deviations are tensors, or two numbers beside a size."""
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if size is None:
            raise TypeError("normal() received an invalid combination of arguments - got (float, float), but expected a size")
        first, spread = mean, std
        _check_normal(_DOUBLE, 0.0, spread)
        return _fresh(
            "normal", sizes_of((size,), "normal"), lambda g, shape, dtype: _normal(g, shape, dtype, first, spread),
            generator=generator, out=out, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
            pin_memory=pin_memory,
        )  # fmt: skip
    if size is not None or dtype is not None or device is not None:
        raise TypeError("normal() received an invalid combination of arguments: with tensors there is no size, dtype or device")
    if isinstance(std, Tensor):
        if std._array.dtype.kind == "c":
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if bool((std._array < 0).any()):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    else:
        _check_normal(_DOUBLE, 0.0, std)
    model = mean if isinstance(mean, Tensor) else std
    kind = model._array.dtype
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        shape = check_broadcast(mean, std)
        kind = dtypes.promote_types(mean.dtype, std.dtype).numpy
    else:
        shape = model._array.shape
    drawn = _normal(generator_for(generator, model.device), shape, kind)
    for combine, other in ((np.multiply, std), (np.add, mean)):
        factor = other._array if isinstance(other, Tensor) else kind.type(other)
        drawn = combine(drawn, factor).astype(kind, copy=False)
    if out is not None:
        store_out(out, made(drawn))
        return out
    if kind.kind == "c" and mode.grad and any(isinstance(t, Tensor) and t.requires_grad for t in (mean, std)):
        raise RuntimeError("normal does not support automatic differentiation for outputs with complex dtype.")
    tensors = [t if isinstance(t, Tensor) else wrap(library_of_array(model._array).zeros((), kind)) for t in (mean, std)]
    return apply(NORMAL, *tensors, wrap(drawn))


@function(method=False)
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson numbers of the rates that the tensor holds."""
    x = check_tensor(input, "poisson", "input")
    _floating_only(x._array.dtype, "poisson_cpu")
    if bool((x._array < 0).any()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    drawn = generator_for(generator, x.device).poisson(x._array)
    return apply(POISSON, x, wrap(drawn.astype(x._array.dtype)))


@function(method=False)
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials succeed with probability `prob`."""
    shape = check_broadcast(check_tensor(count, "binomial", "count"), check_tensor(prob, "binomial", "prob", 2))
    if count._array.dtype != prob._array.dtype:
        raise RuntimeError(
            f"Found dtype {_name(prob._array.dtype)} but expected {_name(count._array.dtype)}"
        )
    _floating_only(count._array.dtype, "binomial_cpu")
    trials, chances = np.broadcast_to(count._array, shape), np.broadcast_to(prob._array, shape)
    drawn = generator_for(generator, count.device).binomial(trials, np.clip(np.nan_to_num(chances, nan=0.0), 0.0, 1.0))
    return apply(BINOMIAL, count, prob, wrap(drawn.astype(count._array.dtype)))


@function(out=True)
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None) -> Tensor:
    """Places of each row, drawn with probabilities in proportion to the row's numbers."""
    x = check_tensor(input, "multinomial", "input")
    array = x._array
    if not 0 < array.ndim <= 2:
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if array.dtype.kind not in "fV":
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {_name(array.dtype)}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > array.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    weights = array if array.dtype.itemsize > 2 else array.astype(np.float32)
    if any_wrong(~(np.isfinite(weights) & (weights >= 0))):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    source = generator_for(generator, x.device)
    if not array.size:
        return wrap(library_of_array(array).zeros((*array.shape[:-1], num_samples), np.int64))
    if num_samples == 1 or not replacement:
        if any_wrong(~(weights.sum(-1) > 0)):
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        race = weights / exponential(source, weights.shape, weights.dtype)  # the one that arrives first is drawn
        order = np.argsort(-race, axis=-1, kind="stable") if num_samples > 1 else np.argmax(race, -1, keepdims=True)
        return wrap(order[..., :num_samples].copy())
    totals = np.cumsum(weights, -1, dtype=weights.dtype)
    if any_wrong(~(totals[..., -1] > 0)):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    bounds = totals / totals[..., -1:]
    bounds[..., -1] = 1
    drawn = source.uniform((*array.shape[:-1], num_samples), _DOUBLE)
    if array.ndim == 1:
        return wrap(np.searchsorted(bounds, drawn).astype(np.int64, copy=False))
    return wrap(np.stack([np.searchsorted(b, d) for b, d in zip(bounds, drawn)]).astype(np.int64, copy=False))


NAMESPACES["torch"]["Generator"] = Generator

__all__ = ["exponential", "generator_for", "normal", "randint", "randperm"]
