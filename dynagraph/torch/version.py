"""``torch.version``: which PyTorch this is the API of, and what it was built with."""

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.torch_version import TorchVersion

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]

__version__ = TorchVersion("2.13.0+dynagraph")
debug = False
cuda: str | None = None  # CuPy brings its own
git_version = ""
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
__getattr__ = getattr_of(__name__)
