"""``torch.testing``: `assert_close`, and tensors to test with."""

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.testing.comparison import assert_allclose as assert_allclose
from dynagraph.torch.testing.comparison import assert_close as assert_close
from dynagraph.torch.testing.creation import make_tensor as make_tensor

__getattr__ = getattr_of(__name__)
__all__ = ["assert_allclose", "assert_close", "make_tensor"]
