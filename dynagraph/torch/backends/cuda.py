"""``torch.backends.cuda``: flags of matrix products and of attention; these are kept, and change nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dynagraph.torch.core.attention_flags import ENABLED as _attention
from dynagraph.torch.missing import getattr_of


def is_built() -> bool:
    """True: tensors on GPUs are CuPy's arrays, where it is installed."""
    return True


class _Matmul:
    """What products of matrices on a GPU may do."""

    __slots__ = (
        "allow_bf16_reduced_precision_reduction", "allow_fp16_accumulation", "allow_fp16_reduced_precision_reduction", "allow_tf32",
        "fp32_precision",
    )  # fmt: skip

    def __init__(self) -> None:
        self.allow_tf32 = self.allow_fp16_accumulation = False
        self.allow_fp16_reduced_precision_reduction = self.allow_bf16_reduced_precision_reduction = True
        self.fp32_precision = "none"


matmul = _Matmul()


def _enable(kind: str, on: bool) -> None:
    _attention[kind] = bool(on)


def enable_flash_sdp(enabled: bool) -> None:
    """Kept for `flash_sdp_enabled`."""
    _enable("flash", enabled)


def flash_sdp_enabled() -> bool:
    """What `enable_flash_sdp` set."""
    return _attention["flash"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Kept for `mem_efficient_sdp_enabled`."""
    _enable("mem_efficient", enabled)


def mem_efficient_sdp_enabled() -> bool:
    """What `enable_mem_efficient_sdp` set."""
    return _attention["mem_efficient"]


def enable_math_sdp(enabled: bool) -> None:
    """Kept for `math_sdp_enabled`."""
    _enable("math", enabled)


def math_sdp_enabled() -> bool:
    """What `enable_math_sdp` set."""
    return _attention["math"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Kept for `cudnn_sdp_enabled`."""
    _enable("cudnn", enabled)


def cudnn_sdp_enabled() -> bool:
    """What `enable_cudnn_sdp` set."""
    return _attention["cudnn"]


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Kept for `fp16_bf16_reduction_math_sdp_allowed`."""
    _enable("fp16_bf16_reduction_math", enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What `allow_fp16_bf16_reduction_math_sdp` set."""
    return _attention["fp16_bf16_reduction_math"]


def is_flash_attention_available() -> bool:
    """False: attention is composed of matrix products and softmax."""
    return False


@dataclass(frozen=True)
class SDPAParams:
    """A call of attention, for `can_use_flash_attention` and the like: tensors (..., length, size), and how it is called."""

    query: Any
    key: Any
    value: Any
    attn_mask: Any
    dropout: float
    is_causal: bool
    enable_gqa: bool = False


def _refused(name: str, debug: bool) -> bool:
    if debug:
        warnings.warn(f"{name} attention is not there: dynagraph.torch has one implementation, for every call", stacklevel=3)
    return False


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False, with a warning why if `debug`: attention has one implementation, which no flag chooses."""
    return _refused("flash", debug)


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """As `can_use_flash_attention`."""
    return _refused("memory efficient", debug)


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """As `can_use_flash_attention`."""
    return _refused("cuDNN's", debug)


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[dict[str, bool]]:
    """A context in which flags of attention are set."""
    before = dict(_attention)
    _attention.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield {}
    finally:
        _attention.update(before)


__getattr__ = getattr_of(__name__)
__all__ = [
    "SDPAParams", "allow_fp16_bf16_reduction_math_sdp", "can_use_cudnn_attention", "can_use_efficient_attention",
    "can_use_flash_attention", "cudnn_sdp_enabled", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp",
    "enable_mem_efficient_sdp", "flash_sdp_enabled", "fp16_bf16_reduction_math_sdp_allowed", "is_built",
    "is_flash_attention_available", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled", "sdp_kernel",
]  # fmt: skip
