"""Functions that draw random numbers: the dropout family, and activations with noise."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.batching_random import for_random
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.tensor import Tensor, apply, wrap
from dynagraph.torch.functions.activations import leaky_relu, only_floats
from dynagraph.torch.functions.arithmetic import add, div, mul, sub
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, dim_of, function, in_place
from dynagraph.torch.functions.elementary import neg
from dynagraph.torch.functions.shapes import squeeze, unsqueeze
from dynagraph.torch.functions.softmax import softmax
from dynagraph.torch.functions.windows import given_sizes

_ALPHA = 1.7580993408473766  # minus what selu tends to at minus infinity


def _empty(shape: Any, like: Tensor) -> Tensor:
    return wrap(for_random(library_of_array(like._array).empty(shape, like._array.dtype)))


def _noise(x: Tensor, shape: Any, p: float) -> Tensor:
    """Ones with probability ``1 - p``, zeros otherwise."""
    return _empty(shape, x).bernoulli_(1 - p)  # type: ignore[attr-defined]


def _feature_shape(x: Tensor) -> tuple[int, ...]:
    shape = x._array.shape
    if len(shape) < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return (*shape[:2], *(1,) * (len(shape) - 2))


def _dropped(x: Tensor, p: float, train: bool, features: bool = False, alpha: bool = False) -> Tensor:
    """The tensor itself where nothing is to do."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p:g}")
    if p == 0 or not train or not x._array.size:
        return x
    if p == 1:
        return mul(x, wrap(library_of_array(x._array).zeros((), x._array.dtype)))
    noise = _noise(x, _feature_shape(x) if features else x._array.shape, p)
    if not alpha:
        return mul(x, div(noise, 1 - p))
    scale = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    shift = add(mul(sub(noise, 1), _ALPHA * scale), _ALPHA * scale * p)
    return add(mul(x, mul(noise, scale)), shift)


def _kind(name: str, features: bool, alpha: bool) -> None:
    def of_torch(input: Tensor, p: float, train: bool) -> Tensor:
        return _dropped(check_tensor(input, name, "input"), p, train, features, alpha)

    of_torch.__name__ = of_torch.__qualname__ = name
    of_torch.__doc__ = f"``torch.{name}``."
    function(name, method=False)(of_torch)
    changing = NAMESPACES["torch"][f"{name}_"] = in_place(of_torch, name)
    if name == "feature_dropout":
        return
    default = name == "dropout"

    def compute(input: Tensor, p: float = 0.5, training: bool = default, inplace: bool = False) -> Tensor:
        x = check_tensor(input, name, "input")
        if p < 0.0 or p > 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        if inplace:
            return changing(x, p, training) if p and training and x._array.size else x
        return of_torch(x, p, training)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = "In training some elements are zeroed at random, and the others scaled so that the mean stays."
    function(name, method=False, namespace="functional")(compute)


_kind("dropout", False, False)
_kind("alpha_dropout", False, True)
_kind("feature_dropout", True, False)
_kind("feature_alpha_dropout", True, True)
_feature_dropout: Callable[..., Tensor] = NAMESPACES["torch"]["feature_dropout"]
dropout: Callable[..., Tensor] = NAMESPACES["functional"]["dropout"]


def _of_channels(n: int) -> None:
    who = f"dropout{n}d"

    def compute(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        x = check_tensor(input, who, "input")
        if p < 0.0 or p > 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        ndim = x._array.ndim
        if ndim not in (n + 1, n + 2):
            if n == 1:
                raise RuntimeError(
                    f"{who}: Expected 2D or 3D input, but received a {ndim}D input. Note that {who} exists to provide channel-wise "
                    "dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch dimension (i.e. 2D or "
                    "3D inputs)."
                )
            warnings.warn(
                f"{who}: Received a {ndim}-D input to {who}, which is deprecated and will result in an error in a future release. "
                f"To retain the behavior and silence this warning, please use dropout instead. Note that {who} exists to provide "
                f"channel-wise dropout on inputs with {n} spatial dimensions, a channel dimension, and an optional batch dimension "
                f"(i.e. {n + 1}D or {n + 2}D inputs).",
                stacklevel=2,
            )
        single = ndim == n + 1 and n != 2  # two dimensions: the first is that of the batch, as it was before
        if inplace:
            return NAMESPACES["torch"]["feature_dropout_"](x, p, training) if not single else _in_batch_of_one(x, p, training)
        if single:
            return squeeze(_feature_dropout(unsqueeze(x, 0), p, training), 0)
        return _feature_dropout(x, p, training)

    compute.__name__ = compute.__qualname__ = who
    compute.__doc__ = "In training whole channels are zeroed at random, and the others scaled so that the mean stays."
    function(who, method=False, namespace="functional")(compute)


def _in_batch_of_one(x: Tensor, p: float, training: bool) -> Tensor:
    changed = NAMESPACES["torch"]["feature_dropout_"](unsqueeze(x, 0), p, training)
    return squeeze(changed, 0)


for _n in (1, 2, 3):
    _of_channels(_n)

# -- activations with noise ---------------------------------------------------------------------------------------------------


def _rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """``torch.rrelu``."""
    x = check_tensor(input, "rrelu", "input")
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(x, (lower + upper) / 2)
    only_floats(x, "rrelu_with_noise_out_cpu")
    slopes = _empty(x._array.shape, x).uniform_(lower, upper)  # type: ignore[attr-defined]
    return apply(PRIMITIVES["prelu_kernel"], x, slopes)


function("rrelu", method=False)(_rrelu)
_rrelu_changing = NAMESPACES["torch"]["rrelu_"] = NAMESPACES["functional"]["rrelu_"] = in_place(_rrelu, "rrelu")


@function(method=False, namespace="functional")
def rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False) -> Tensor:
    """Negative numbers times a slope: in training a random one for each, otherwise the mean of the bounds."""
    return (_rrelu_changing if inplace else _rrelu)(check_tensor(input, "rrelu", "input"), lower, upper, training)


@function(method=False, namespace="functional")
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution; `hard`: one-hot, with the gradient of the soft one."""
    x = check_tensor(logits, "gumbel_softmax", "logits")
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    noise = neg(_empty(x._array.shape, x).exponential_().log())  # type: ignore[attr-defined]
    soft = softmax(div(add(x, noise), tau), dim)
    if not hard:
        return soft
    k = dim_of(dim, x._array.ndim)
    values = soft._array
    chosen = np.zeros_like(values)
    np.put_along_axis(chosen, np.argmax(values, axis=k, keepdims=True), 1, k)
    return add(sub(wrap(chosen), soft.detach()), soft)


# -- pooling at random places -------------------------------------------------------------------------------------------------


def _fractional(n: int) -> None:
    who = f"fractional_max_pool{n}d"

    def both(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = True,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        x = check_tensor(input, who, "input")
        if output_size is None and output_ratio is None:
            raise ValueError(f"{who} requires specifying either an output_size or an output_ratio")
        kernel = given_sizes(kernel_size, n, who, "kernel_size")
        shape = x._array.shape
        if len(shape) not in (n + 1, n + 2):
            rank = len(shape)
            raise IndexError(f"Dimension out of range (expected to be in range of [-{rank}, {rank - 1}], but got -{n + 1})")
        inner = shape[len(shape) - n :]
        if output_size is None:
            ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * n
            if len(ratios) != n:
                raise ValueError(f"{who} requires output_ratio to either be a single Int or tuple of Ints.")
            counts: tuple[int, ...] = tuple(int(m * r) for m, r in zip(inner, ratios))
        else:
            counts = given_sizes(output_size, n, who, "output_size")
        if any(k < 1 for k in kernel):  # PyTorch reads memory beyond the tensor
            raise RuntimeError(f"{who}(): kernel size should be greater than zero, but got {kernel}")
        for m, k, count, what in zip(inner, kernel, counts, ("time", "height", "width")[-n:]):
            if count + k - 1 > m:
                raise RuntimeError(f"{who}{'_out' if n == 3 else ''}(): pool {what} {k} too large relative to input {what} {m}")
        only_floats(x, f"{who}_out_frame")
        single = len(shape) == n + 1
        batch = unsqueeze(x, 0) if single else x
        if single and _random_samples is not None:  # of which PyTorch reads the first batch
            _random_samples = _random_samples[:1]
        samples = _samples(batch, _random_samples, n)
        values, places = apply(PRIMITIVES[who], batch, samples, kernel=kernel, places=counts)
        return (squeeze(values, 0), squeeze(places, 0)) if single else (values, places)

    def compute(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        found = both(input, kernel_size, output_size, output_ratio, True, _random_samples)
        return found if return_indices else found[0]

    for name, public in ((who, compute), (f"{who}_with_indices", both)):
        public.__name__ = public.__qualname__ = name  # type: ignore[attr-defined]
        public.__doc__ = "The greatest elements of windows at random places, as many as are asked for."
        function(name, method=False, namespace="functional")(public)


def _samples(x: Tensor, given: Tensor | None, n: int) -> Tensor:
    batch, channels = x._array.shape[:2]
    if given is None:
        return _empty((batch, channels, n), x).uniform_()  # type: ignore[attr-defined]
    if given._array.dtype != x._array.dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    for k, (wanted, what) in enumerate(((batch, "batch"), (channels, "channel"))):
        if given._array.shape[k] != wanted:
            raise RuntimeError(f"Expect _random_samples.size({k}) equals to input {what} size.")
    if given._array.shape[2] != n:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {n}; got {given._array.shape[2]}.")
    return given


for _n in (2, 3):
    _fractional(_n)

__all__ = ["dropout"]
