"""``torch.backends.quantized``: there are no quantized tensors."""

from dynagraph.torch.missing import getattr_of

engine = "none"
supported_engines = ["none"]
__getattr__ = getattr_of(__name__)
