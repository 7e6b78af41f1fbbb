"""``torch.backends``: NumPy, CuPy and compiled kernels compute.  Flags of other libraries are kept, and change nothing."""

from dynagraph.torch.backends import cpu as cpu
from dynagraph.torch.backends import cuda as cuda
from dynagraph.torch.backends import cudnn as cudnn
from dynagraph.torch.backends import mkl as mkl
from dynagraph.torch.backends import mkldnn as mkldnn
from dynagraph.torch.backends import mps as mps
from dynagraph.torch.backends import nnpack as nnpack
from dynagraph.torch.backends import openmp as openmp
from dynagraph.torch.backends import opt_einsum as opt_einsum
from dynagraph.torch.backends import quantized as quantized
from dynagraph.torch.missing import getattr_of

fp32_precision = "none"
__getattr__ = getattr_of(__name__)
