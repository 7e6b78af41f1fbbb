"""Autocast: in which dtype functions compute within `torch.autocast`.

One table says it, by PyTorch's names of its operators.  `autocasting` makes the form of a function that asks for it; while the
function itself runs nothing is cast, as in PyTorch.  Functions that are not in the table take what they are given, and the
functions they are made of ask for themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import is_on_gpu
from dynagraph.torch.core.dtypes import dtype
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.tensor import CAST, Tensor, apply

# -- the table --------------------------------------------------------------------------------------------------------
# lower: operands become the dtype of the region, float32: float32, promote: the widest that they have.
# in float32: float32 is the dtype of the result where none is given.  refused: not in such a region.

_LOWER, _FLOAT32, _PROMOTE, _IN_FLOAT32, _REFUSED = "lower", "float32", "promote", "in float32", "refused"
_CPU = {
    _LOWER: (
        "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution bmm "
        "mm baddbmm addmm _addmm_activation addbmm linear matmul linalg_vecdot prelu scaled_dot_product_attention"
    ),
    _FLOAT32: (
        "avg_pool3d binary_cross_entropy grid_sampler grid_sample grid_sampler_2d grid_sampler_3d polar prod quantile "
        "nanquantile stft cdist trace view_as_complex cholesky cholesky_inverse cholesky_solve inverse lu_solve orgqr "
        "ormqr pinverse max_pool3d max_pool3d_with_indices max_unpool2d max_unpool3d adaptive_avg_pool3d "
        "fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_with_indices "
        "fractional_max_pool3d_with_indices adaptive_max_pool3d adaptive_max_pool3d_with_indices reflection_pad1d "
        "reflection_pad2d replication_pad1d replication_pad2d replication_pad3d mse_loss cosine_embedding_loss nll_loss "
        "nll_loss_nd hinge_embedding_loss poisson_nll_loss smooth_l1_loss cross_entropy l1_loss huber_loss "
        "margin_ranking_loss soft_margin_loss triplet_margin_loss multi_margin_loss ctc_loss kl_div "
        "multilabel_margin_loss binary_cross_entropy_with_logits fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn "
        "fft_rfft fft_irfft fft_rfft2 fft_irfft2 fft_rfftn fft_irfftn fft_hfft fft_ihfft linalg_cond linalg_matrix_rank "
        "linalg_solve linalg_cholesky linalg_svdvals linalg_eigvals linalg_eigvalsh linalg_inv "
        "linalg_householder_product linalg_tensorinv linalg_tensorsolve fake_quantize_per_tensor_affine geqrf lu qr svd "
        "triangular_solve linalg_qr linalg_cholesky_ex linalg_svd linalg_eig linalg_eigh linalg_lstsq linalg_inv_ex"
    ),
    _PROMOTE: "stack cat index_copy",
}
_CUDA = {
    _LOWER: (
        "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution prelu "
        "addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot "
        "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention"
    ),
    _FLOAT32: (
        "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm "
        "native_layer_norm rms_norm group_norm frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss "
        "cosine_embedding_loss nll_loss nll_loss_nd hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss "
        "mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss "
        "binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp interpolate"
    ),
    _IN_FLOAT32: "prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum norm",
    _PROMOTE: "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler grid_sample index_put tensordot scatter_add",
    _REFUSED: "binary_cross_entropy",
}
_CPU_POLICY, _CUDA_POLICY = ({n: policy for policy, names in table.items() for n in names.split()} for table in (_CPU, _CUDA))
_LIBRARIES = ("linalg", "fft")  # whose names are parts of the operators' names

_DTYPES = {  # by the number that a thread's state has; 0 is the device's own
    "cpu": (dtypes.bfloat16, *dtypes.ALL), "cuda": (dtypes.float16, *dtypes.ALL),
}  # fmt: skip


def dtype_of_region(device_type: str) -> dtype:
    """What operands become for functions that gain by it."""
    return _DTYPES[device_type][mode.autocast_cpu_dtype if device_type == "cpu" else mode.autocast_cuda_dtype]


def number_of(given: dtype, device_type: str) -> int:
    """The number that a thread's state has for a dtype: 0 for the one that there is from the beginning."""
    return _DTYPES[device_type].index(given)


# -- functions that ask -----------------------------------------------------------------------------------------------


def autocasting(compute: Callable[..., Any], name: str, namespace: str) -> Callable[..., Any]:
    """The form of a function that computes in the dtype of the table; the function itself where it is in no table."""
    operator = f"{namespace}_{name}" if namespace in _LIBRARIES else name
    cpu, cuda = _CPU_POLICY.get(operator, ""), _CUDA_POLICY.get(operator, "")
    if not (cpu or cuda):
        return compute

    @functools.wraps(compute)
    def asking(*args: Any, **kwargs: Any) -> Any:
        if not mode.autocast:
            return compute(*args, **kwargs)
        return _computed(compute, cpu, cuda, args, kwargs)

    asking.without_autocast = compute  # type: ignore[attr-defined]
    return asking


ASKING = next(c for c in autocasting.__code__.co_consts if isinstance(c, CodeType) and c.co_name == "asking")


def _computed(compute: Callable[..., Any], cpu: str, cuda: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors = _tensors_in((*args, *kwargs.values()))
    on_gpu = any(is_on_gpu(t._array) for t in tensors)
    policy = (cuda if mode.autocast_cuda else "") if on_gpu else (cpu if mode.autocast_cpu else "")
    if not policy:
        return compute(*args, **kwargs)
    if policy == _REFUSED:
        raise RuntimeError(_IS_REFUSED)
    lower = dtype_of_region("cuda" if on_gpu else "cpu")
    target = lower if policy == _LOWER else dtypes.float32
    if policy == _PROMOTE:
        target = _widest([t for t in tensors if _is_eligible(t)], lower)
    if policy == _IN_FLOAT32:
        given = kwargs.get("dtype") is not None or any(isinstance(a, dtype) for a in args)
        if not given and tensors and _is_eligible(tensors[0]):
            kwargs = {**kwargs, "dtype": dtypes.float32}
    else:
        args = tuple([_cast_in(a, target, lower) for a in args])
        kwargs = {k: _cast_in(v, target, lower) for k, v in kwargs.items()}
    mode.autocast = False
    try:
        return compute(*args, **kwargs)
    finally:
        mode.autocast = True


def _tensors_in(values: Any) -> list[Tensor]:
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [v for v in value if isinstance(v, Tensor)]
    return found


def _is_eligible(x: Tensor) -> bool:
    """Whether it is of floating point, and no float64."""
    given = x._array.dtype
    return given.kind in "fV" and given.itemsize < 8


def _widest(tensors: list[Tensor], lower: dtype) -> dtype:
    target = lower
    for x in tensors:
        if x.dtype is dtypes.float32:
            target = dtypes.float32
        elif x.dtype is not lower:
            raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
    return target


def _cast_in(value: Any, target: dtype, lower: dtype) -> Any:
    """A tensor, or the tensors of a sequence, in another dtype; weights are cast once in a region."""
    if isinstance(value, Tensor):
        given = value.dtype
        if given is target or not _is_eligible(value):
            return value
        if target is not lower or given is not dtypes.float32 or not _is_weight(value):
            return apply(CAST, value, dtype=target.numpy)
        casts = mode.casts
        if casts is None:
            return apply(CAST, value, dtype=target.numpy)
        if value not in casts:
            casts[value] = apply(CAST, value, dtype=target.numpy)
        return casts[value]
    if type(value) in (list, tuple):
        return type(value)([_cast_in(v, target, lower) for v in value])
    return value


def _is_weight(x: Tensor) -> bool:
    """Whether it is a leaf that gradients are recorded of: what later casts of it would be added to, one by one."""
    return mode.grad and mode.autocast_cache and x._requires_grad and x._grad_fn is None and x._base is None


_IS_REFUSED = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)

__all__ = ["ASKING", "autocasting", "dtype_of_region", "number_of"]
