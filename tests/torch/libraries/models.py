"""The uses of torch in timm 1.0's modules at their import, except for layers, optimizers and data sets."""
# ruff: noqa: F401, I001

import torch
import torch.distributed as dist
import torch.jit
import torch.nn.functional as F
from torch import _assert
from torch import distributed
from torch.hub import HASH_REGEX, download_url_to_file, load_state_dict_from_url, urlparse
from torch.jit import Final
from torch.jit.annotations import List
from torch.utils.model_zoo import load_url

try:
    from torch.hub import get_dir
except ImportError:
    from torch.hub import _get_torch_home as get_dir

# layers/fast_norm.py, layers/config.py: probed, and gone without
try:
    from torch.nn.functional import no_such_function
except ImportError:
    no_such_function = None
has_fused_attention = hasattr(torch.nn.functional, "scaled_dot_product_attention")
has_inductor = hasattr(torch, "_dynamo") and "inductor" in torch.compiler.list_backends()
TORCH_2 = torch.__version__ >= "2.0" and tuple(int(x) for x in torch.__version__.split(".")[:2]) >= (2, 0)
HAS_FOREACH = False
try:
    HAS_FOREACH = "Scalar" in torch.ops.aten._foreach_maximum_.overloads()
except AttributeError:
    pass
HAS_L2_CACHE_SIZE = hasattr(getattr(torch._C, "_CudaDeviceProperties", None), "L2_cache_size")


# layers/activations_me.py
@torch.jit.script
def swish_fwd(x):
    return x.mul(torch.sigmoid(x))


@torch.jit.script
def swish_bwd(x, grad_output):
    x_sigmoid = torch.sigmoid(x)
    return grad_output * (x_sigmoid * (1 + x * (1 - x_sigmoid)))


class SwishAutoFn(torch.autograd.Function):
    @staticmethod
    def symbolic(g, x):
        return g.op("Mul", x, g.op("Sigmoid", x))

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return swish_fwd(x)

    @staticmethod
    def backward(ctx, grad_output):
        return swish_bwd(ctx.saved_tensors[0], grad_output)


# models/densenet.py, models/_features.py, layers/pos_embed_sincos.py
class Block:
    grad_checkpointing: Final[bool]

    @torch.jit.ignore
    def any_requires_grad(self, x: List[torch.Tensor]) -> bool:
        return any(t.requires_grad for t in x)

    @torch.jit._overload_method
    def forward(self, x):
        pass

    @torch.jit.export
    def call(self, x):
        return self.any_requires_grad(x)

    @torch.compiler.disable()
    def plain(self, x):
        return x


# utils/jit.py
def set_jit_legacy():
    assert hasattr(torch._C, "_jit_set_profiling_executor")
    torch._C._jit_set_profiling_executor(False)
    torch._C._jit_set_profiling_mode(False)
    torch._C._jit_override_can_fuse_on_gpu(True)


# utils/cuda.py, utils/distributed.py
torch.backends.cudnn.benchmark = False
torch.backends.cuda.matmul.allow_tf32 = False
is_distributed = dist.is_available() and dist.is_initialized()

set_jit_legacy()
x = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
assert torch.autograd.gradcheck(SwishAutoFn.apply, (x,)) if hasattr(torch.autograd, "gradcheck") else True
assert Block().call([x]) and not is_distributed and TORCH_2 and no_such_function is None and not HAS_FOREACH
_assert(Block().plain(1) == 1, "it runs as it is")
assert HASH_REGEX.search("resnet18-5c106cde.pth") and urlparse("https://a/b.pth").path == "/b.pth" and get_dir().endswith("hub")
