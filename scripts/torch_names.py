"""Write down the public names of PyTorch, by namespace: tests/torch/names.json.

    pip install torch==2.13.0 && python scripts/torch_names.py

`python -m tests.torch.page` makes docs/torch.md of it, without PyTorch.
"""

from __future__ import annotations

import importlib
import json
import re
import types
from pathlib import Path
from typing import Any

import torch

TARGET = Path(__file__).parents[1] / "tests" / "torch" / "names.json"
NAMESPACES = (
    "torch", "torch.Tensor", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.autograd",
    "torch.autograd.Function", "torch.autograd.forward_ad", "torch.autograd.functional", "torch.autograd.graph", "torch.func",
    "torch.random", "torch.cuda", "torch.sparse", "torch.utils", "torch.utils.checkpoint", "torch.utils.data", "torch.utils.dlpack",
    "torch.nn", "torch.nn.attention", "torch.nn.init", "torch.nn.utils", "torch.nn.utils.rnn", "torch.nn.utils.parametrize",
    "torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils", "torch.amp", "torch.distributions", "torch.signal.windows",
    "torch.compiler", "torch.jit", "torch.library", "torch.hub", "torch.accelerator", "torch.overrides", "torch.profiler",
    "torch.testing", "torch.distributed", "torch.multiprocessing", "torch.masked", "torch.nested", "torch.cpu", "torch.mps",
    "torch.backends.cpu", "torch.backends.cuda", "torch.backends.cudnn", "torch.backends.mkldnn", "torch.backends.mps",
)  # fmt: skip
# imported there, constants of the source, or helpers
OTHER = frozenset({
    "AVG", "Any", "Callable", "DeviceType", "Enum", "Final", "Generic", "Iterable", "Iterator", "List", "Literal", "Optional",
    "PRIVATE_OPS", "PackedSequence_", "ProfilerConfig", "ProfilerEvent", "ProfilerState", "SUM", "SavedTensor", "ScalingType",
    "Sequence", "SwizzleType", "TYPE_CHECKING", "TypeVar", "USE_GLOBAL_DEPS", "USE_RTLD_GLOBAL_WITH_LIBTORCH", "Union",
    "annotations", "assert_int_or_pair", "autocast_decrement_nesting", "autocast_increment_nesting", "bind", "boolean_dispatch",
    "cast", "classproperty", "contextmanager", "enforce_grad_layout_policy", "fork", "get_file_path", "handle_torch_function",
    "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "import_ir_module",
    "import_ir_module_from_buffer", "init_num_threads", "merge_type_from_type_comment", "parse_ir", "parse_schema",
    "parse_type_comment", "prepare_multiprocessing_environment", "profiler_allow_cudagraph_cupti_lazy_reinit_cuda12",
    "unify_type_list", "variable", "wait",
})  # fmt: skip
# of PyTorch's compiled module, and public; its other classes are TorchScript's
OF_C = frozenset({
    "AcceleratorError", "Event", "Generator", "OutOfMemoryError", "Size", "Stream", "Tag", "device", "dtype", "finfo", "iinfo",
    "layout", "memory_format",
})  # fmt: skip
# named after libraries, or of quantized tensors
KERNELS = re.compile(
    r"(cudnn|miopen|mkldnn|fbgemm|fake_quantize|quantize|quantized|q|choose_qparams|fused_moving_avg|int_repr|dequantize)(_|$)"
    r"|Q(Int|UInt)|per_(channel|tensor)_|q(u?int|scheme)|sym_constrain"
)


def owner_of(namespace: str) -> Any:
    try:
        return importlib.import_module(namespace)
    except ModuleNotFoundError:
        parent, _, name = namespace.rpartition(".")
        return getattr(importlib.import_module(parent), name)


def names_of(namespace: str) -> list[str]:
    """What is public there: what ``__all__`` names, and what is defined there; modules apart."""
    owner = owner_of(namespace)
    declared = set(getattr(owner, "__all__", ()))
    if namespace.startswith("torch.backends.") and hasattr(owner, "m"):  # flags, over a module
        flags = {name for name, value in vars(type(owner)).items() if type(value).__name__ == "ContextProp"}
        return sorted(flags | {n for n, f in vars(owner.m).items() if isinstance(f, types.FunctionType) and n[0] != "_"})
    return [n for n in sorted({*dir(owner), *declared}) if _is_public(namespace, owner, n, declared)]


def _is_public(namespace: str, owner: Any, name: str, declared: set[str]) -> bool:
    value = getattr(owner, name, None)
    if name.startswith("_") or isinstance(value, types.ModuleType) or KERNELS.match(name):
        return False
    if namespace == "torch.overrides":
        return name in declared or name.startswith("has_torch_function")
    if name in OTHER or (value is torch.Tensor and namespace != "torch"):
        return False
    if namespace in ("torch", "torch.Tensor") or isinstance(owner, type):
        return not (isinstance(value, type) and hasattr(torch._C, name)) or name in OF_C
    return name in declared or (callable(value) and _belongs(value, namespace))


def _belongs(value: Any, namespace: str) -> bool:
    """Whether a function or class is defined in a namespace, or is a function in C."""
    module = getattr(value, "__module__", None) or ""
    return module.startswith((namespace, "torch._C.")) or isinstance(value, types.BuiltinFunctionType)


def main() -> None:
    names = {namespace: " ".join(names_of(namespace)) for namespace in NAMESPACES}
    TARGET.write_text(json.dumps({"torch": torch.__version__.partition("+")[0], "names": names}, indent=1) + "\n")
    print(f"{sum(len(n.split()) for n in names.values())} names of {len(names)} namespaces in {TARGET.name}")


if __name__ == "__main__":
    main()
