"""``torch.backends.mps``: Apple's GPUs are not used."""

from dynagraph.torch.missing import getattr_of


def is_built() -> bool:
    """False: Apple's GPUs are not used."""
    return False


def is_available() -> bool:
    """False: Apple's GPUs are not used."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """False: the version is not asked for."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    """False: the version is not asked for."""
    return False


__getattr__ = getattr_of(__name__)
__all__ = ["is_available", "is_built", "is_macos13_or_newer", "is_macos_or_newer"]
