"""Operations on large arrays outside of compiled functions: the function of each, compiled by itself.

The kernels use all threads and recycle memory.  dynagraph/driver/unasked.py says when one is compiled, and why no result depends on
when that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph._core._dispatch import any_large
from dynagraph._core._dispatch import by_size as _by_size
from dynagraph.driver.unasked import compile_unasked
from dynagraph.ir.ops import OPS, Elementwise

LARGE = 1 << 17  # elements
_made: dict[str, Callable[..., Any]] = {}

# primitives whose compiled functions give NumPy's bits; of the op table's rows those that say so
_EXACT = frozenset(
    {
        "argmax", "argmin", "clamp", "clamp_both", "clamp_max", "clamp_min", "copy", "cumsum", "hardshrink",
        "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "masked_fill_number", "mean", "mean_all", "mse_loss",
        "power_by_products", "relu", "rsqrt", "rsub", "softshrink", "std", "sum", "sum_all", "threshold", "var",
    }
)  # fmt: skip

# those that may differ from NumPy in last places, in which zero 0.0 and -0.0 give, or for numbers beyond a dtype's range
_INEXACT = frozenset(
    {
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "cast", "celu", "elu", "entr", "erf", "erfc", "erfcx", "erfinv",
        "fmax", "fmin", "gelu", "gelu_tanh", "glu", "huber_loss", "log_ndtr", "log_sigmoid", "log_softmax", "logaddexp", "logit",
        "logsumexp", "max", "max_all", "min", "min_all", "mish", "ndtri", "normal_cdf", "power_of_number", "prod", "prod_all",
        "sigmoid", "silu", "sinc", "smooth_l1_loss", "softmax", "softplus", "to_copy", "vector_norm", "xlog1py", "xlogy",
    }
)  # fmt: skip


def large(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
    """What computes a primitive, or an op of gradients, of large arrays: `forward` itself where there is nothing to gain."""
    found = _made.get(name)
    if found is None:
        is_known = name in _EXACT or name in _INEXACT or _is_elementwise(name)
        found = _made[name] = _compiled(name, forward, _is_exact(name)) if is_known else forward
    return found


def large_gradient(name: str, forward: Callable[..., Any], by: str = "") -> Callable[..., Any]:
    """What computes the gradient of a primitive, by one of its operands, which is exact where the primitive is."""
    own = f"{name}_backward{by and f'_by_{by}'}"
    found = _made.get(own)
    if found is None:
        found = _made[own] = _compiled(own, forward, _is_exact(name))
    return found


def _is_elementwise(name: str) -> bool:
    return name in OPS and isinstance(OPS[name].lowering, Elementwise)


def _is_exact(name: str) -> bool:
    return name in _EXACT or (name not in _INEXACT and OPS[name].exact)


def _compiled(name: str, forward: Callable[..., Any], exact: bool) -> Callable[..., Any]:
    def kernel(*arrays: Any, **attrs: Any) -> Any:
        return forward(*arrays, **attrs)

    kernel.__name__ = kernel.__qualname__ = name
    made: Callable[..., Any] = compile_unasked(kernel, exact)
    return made


def writing(ufunc: np.ufunc, is_scaled: bool) -> Callable[..., None]:
    """What stores ``ufunc(x, y)``, or ``ufunc(x, y * scale)``, of large arrays in `x`; the function is an exact one."""

    def onto(x: Any, y: Any) -> None:
        ufunc(x, y, out=x)

    def onto_scaled(x: Any, y: Any, scale: float) -> None:
        ufunc(x, np.multiply(y, scale), out=x)

    name = f"{ufunc.__name__}_{'scaled_' * is_scaled}"
    if name not in _made:
        kernel = onto_scaled if is_scaled else onto
        kernel.__name__ = kernel.__qualname__ = name
        _made[name] = compile_unasked(kernel, exact=True)
    return _made[name]


def kernels() -> dict[str, Callable[..., Any]]:
    """The functions of large arrays that calls have asked for so far, by primitive: `stats` of each says how its calls went."""
    return {name: found for name, found in _made.items() if hasattr(found, "stats")}


def is_large(arrays: tuple[Any, ...]) -> bool:
    """Whether arrays, and numbers beside them, are NumPy's and one is large."""
    return any_large(arrays, LARGE)


def by_size(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward`, or where an array is large what `large` gives for it."""
    return _by_size(forward, lambda *arrays, **attrs: large(name, forward)(*arrays, **attrs), LARGE, __name__)


__all__ = ["LARGE", "by_size", "is_large", "kernels", "large", "large_gradient", "writing"]
