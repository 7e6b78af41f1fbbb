"""The uses of torch in torchvision 0.28's modules at their import, except for layers, data sets and torch.fx."""
# ruff: noqa: B008, F401

import torch
import torch._custom_ops
import torch.library
import torch.nn.functional as F
from torch import Tensor
from torch import distributed as dist
from torch._C import DisableTorchFunctionSubclass
from torch._dynamo.utils import is_compile_supported
from torch.hub import load_state_dict_from_url
from torch.jit.annotations import BroadcastingList2
from torch.onnx import operators
from torch.onnx import symbolic_opset11 as opset11
from torch.onnx.symbolic_helper import parse_args
from torch.types import _device, _dtype, _size
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.model_zoo import tqdm
from torch.version import cuda as torch_version_cuda

# extension.py: the compiled operators are PyTorch's
try:
    torch.ops.load_library("torchvision/_C.so")
    has_ops = True
except (ImportError, OSError):
    has_ops = False

# _autograd_registrations.py
autocast_keys = (
    torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
    | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastXPU)
)
torch.library.register_autograd("vision_test::roi_align", lambda ctx, g: g, setup_context=lambda ctx, inputs, output: None)
library = torch.library.Library("vision_test", "IMPL", "Meta")


# _meta_registrations.py
@torch.library.register_fake("vision_test::nms")
def meta_nms(dets, scores, iou_threshold):
    return dets.new_empty((0,), dtype=torch.long)


# ops/_register_onnx_ops.py
@parse_args("v", "v", "f")
def symbolic_multi_label_nms(g, boxes, scores, iou_threshold):
    return opset11.squeeze(g, boxes)


torch.onnx.register_custom_op_symbolic("vision_test::nms", symbolic_multi_label_nms, 11)


# ops/boxes.py, ops/roi_align.py
@torch.jit._script_if_tracing
def batched_nms(boxes: Tensor, size: BroadcastingList2[int]) -> Tensor:
    if not torch.jit.is_scripting() and not torch.jit.is_tracing():
        torch._C._log_api_usage_once("vision_test.batched_nms")
    return boxes


@torch.jit.unused
def spatial(input: Tensor) -> Tensor:
    return input


class Anchors:
    __annotations__ = {"cell_anchors": list[torch.Tensor]}

    def generate(self, scales, dtype: torch.dtype = torch.float32, device: torch.device = torch.device("cpu")):
        return torch.as_tensor(scales, dtype=dtype, device=device)


# tv_tensors/_tv_tensor.py
class TVTensor(torch.Tensor):
    @staticmethod
    def _to_tensor(data, dtype=None, device=None, requires_grad=None):
        return torch.as_tensor(data, dtype=dtype, device=device)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


# transforms/functional.py
INTERPOLATE_DTYPES = {torch.uint8: torch.float32, torch.float16: torch.float16, torch.float64: torch.float64}


@torch.no_grad()
def make_grid(tensor: torch.Tensor | list[torch.Tensor], **kwargs) -> torch.Tensor:
    return torch.stack(tensor) if isinstance(tensor, list) else tensor


def is_tracing() -> bool:
    return torch._C._get_tracing_state() is not None


assert dist.is_available() and not dist.is_initialized() and is_tracing() is False
assert torch_version_cuda is None and not has_ops and is_compile_supported("cpu")
assert make_grid([torch.zeros(2), torch.ones(2)]).shape == (2, 2)
assert batched_nms(torch.ones(1), [1, 2]) is not None and F is torch.nn.functional
assert tree_unflatten(*tree_flatten({"image": [torch.ones(1)], "label": 3}))["label"] == 3
