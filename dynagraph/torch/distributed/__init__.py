"""``torch.distributed``: not available."""

from dynagraph.torch.missing import getattr_of


def is_available() -> bool:
    """False: programs run in one process."""
    return False


def is_initialized() -> bool:
    """False: programs run in one process."""
    return False


def is_torchelastic_launched() -> bool:
    """False: programs run in one process."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = is_ucc_available = is_xccl_available = is_available
__getattr__ = getattr_of(__name__)
__all__ = [
    "is_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
    "is_ucc_available", "is_xccl_available",
]  # fmt: skip
