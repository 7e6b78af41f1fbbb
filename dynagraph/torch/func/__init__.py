"""``torch.func``: transforms of functions.  They compose: per-example gradients are ``vmap(grad(loss), in_dims=(None, 0))``."""

from __future__ import annotations

from dynagraph.torch.func.batch import debug_unwrap as debug_unwrap
from dynagraph.torch.func.batch import vmap as vmap
from dynagraph.torch.func.functional_call import functional_call as functional_call
from dynagraph.torch.func.functional_call import stack_module_state as stack_module_state
from dynagraph.torch.func.transforms import functionalize as functionalize
from dynagraph.torch.func.transforms import grad as grad
from dynagraph.torch.func.transforms import grad_and_value as grad_and_value
from dynagraph.torch.func.transforms import hessian as hessian
from dynagraph.torch.func.transforms import jacfwd as jacfwd
from dynagraph.torch.func.transforms import jacrev as jacrev
from dynagraph.torch.func.transforms import jvp as jvp
from dynagraph.torch.func.transforms import linearize as linearize
from dynagraph.torch.func.transforms import vjp as vjp
from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
__all__ = [
    "debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp",
    "linearize", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
