"""``torch.onnx.symbolic_opset11``: its functions are called in an export only, and are missing."""

from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
