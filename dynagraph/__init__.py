"""dynagraph: a bytecode-capturing graph compiler for NumPy functions.

import dynagraph as dg

@dg.compile
def f(x, y):
    return np.tanh(x) + y
"""

from importlib import import_module as _import_module
from typing import Any

import dynagraph.pickling  # noqa: F401  (says how compiled functions travel)
from dynagraph import config, cuda
from dynagraph.api import (
    CompileBudgetWarning,
    Explanation,
    RecompileLimitWarning,
    allow_in_graph,
    compile,
    disable,
    explain,
    graph_break,
    is_compiling,
    mark_dynamic,
    reset,
    stance,
)
from dynagraph.autodiff.check_gradients import check_grads
from dynagraph.autodiff.custom import checkpoint, custom_vjp, stop_gradient
from dynagraph.autodiff.mapping import vmap
from dynagraph.autodiff.transforms import (
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    value_and_grad,
    vjp,
)
from dynagraph.cuda.memory import pinned_empty
from dynagraph.cuda.transfers import to_device
from dynagraph.dims import Dim
from dynagraph.driver import loading
from dynagraph.errors import (
    BackendError,
    CaptureError,
    CompilerError,
    ConfigError,
    CudaError,
    DTypeError,
    DynagraphError,
    ExportError,
    GradientError,
    GraphError,
    KernelError,
    ShapeError,
)
from dynagraph.exports import export, load_exported

__version__ = "0.1.0"

loading.remember_modules()

# what needs the compiler is imported when somebody asks for it, by the module that has it
_LATER = {"ExportedProgram": "dynagraph.exporting", "onnx": "dynagraph.onnx"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'dynagraph' has no attribute {name!r}", name=name)
    loading.compiler()
    module = _import_module(_LATER[name])
    return module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})

__all__ = [
    "BackendError",
    "CaptureError",
    "CompileBudgetWarning",
    "CompilerError",
    "ConfigError",
    "CudaError",
    "DTypeError",
    "Dim",
    "DynagraphError",
    "Explanation",
    "ExportError",
    "GradientError",
    "GraphError",
    "KernelError",
    "RecompileLimitWarning",
    "ShapeError",
    "__version__",
    "allow_in_graph",
    "check_grads",
    "checkpoint",
    "compile",
    "config",
    "cuda",
    "custom_vjp",
    "disable",
    "explain",
    "export",
    "grad",
    "graph_break",
    "hessian",
    "hvp",
    "is_compiling",
    "jacobian",
    "jvp",
    "load_exported",
    "mark_dynamic",
    "pinned_empty",
    "reset",
    "stance",
    "stop_gradient",
    "to_device",
    "value_and_grad",
    "vjp",
    "vmap",
]
