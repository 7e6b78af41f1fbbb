"""Which implementations of attention may be used, as PyTorch's switches say: kept, and without effect."""

ENABLED = {
    "flash": True, "mem_efficient": True, "math": True, "cudnn": True, "overrideable": True, "fp16_bf16_reduction_math": False,
}  # fmt: skip

__all__ = ["ENABLED"]
