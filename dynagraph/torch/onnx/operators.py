"""``torch.onnx.operators``"""

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.creation import tensor
from dynagraph.torch.missing import getattr_of


def shape_as_tensor(x: Tensor) -> Tensor:
    """The sizes of a tensor, as a tensor of integers."""
    return tensor(list(x.shape))


def reshape_from_tensor_shape(x: Tensor, shape: Tensor) -> Tensor:
    """A tensor in the shape that another one holds."""
    return x.reshape(shape.tolist())


__getattr__ = getattr_of(__name__)
__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]
