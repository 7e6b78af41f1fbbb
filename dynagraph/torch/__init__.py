"""PyTorch's API on NumPy and CuPy arrays: ``import dynagraph.torch as torch``.

Tensors hold arrays.  What is computed with them is recorded where gradients are asked for, and differentiated by the same table
of ops that graphs are.  Names, arguments, defaults, dtypes and errors are PyTorch's; docs/torch.md lists what there is.

>>> import dynagraph.torch as torch
>>> w = torch.tensor([1.0, 2.0], requires_grad=True)
>>> loss = (w * w).sum()
>>> loss.backward()
>>> w.grad
tensor([2., 4.])
"""

from __future__ import annotations

import math
import sys

from dynagraph.torch import __config__ as __config__
from dynagraph.torch import amp as amp
from dynagraph.torch import autograd as autograd
from dynagraph.torch import fft as fft
from dynagraph.torch import func as func
from dynagraph.torch import linalg as linalg
from dynagraph.torch import nn as nn
from dynagraph.torch import random as random
from dynagraph.torch import sparse as sparse
from dynagraph.torch import special as special
from dynagraph.torch import storage as storage
from dynagraph.torch.amp.autocast_mode import (
    autocast as autocast,
)
from dynagraph.torch.amp.autocast_mode import (
    clear_autocast_cache as clear_autocast_cache,
)
from dynagraph.torch.amp.autocast_mode import (
    get_autocast_cpu_dtype as get_autocast_cpu_dtype,
)
from dynagraph.torch.amp.autocast_mode import (
    get_autocast_dtype as get_autocast_dtype,
)
from dynagraph.torch.amp.autocast_mode import (
    get_autocast_gpu_dtype as get_autocast_gpu_dtype,
)
from dynagraph.torch.amp.autocast_mode import (
    is_autocast_cache_enabled as is_autocast_cache_enabled,
)
from dynagraph.torch.amp.autocast_mode import (
    is_autocast_cpu_enabled as is_autocast_cpu_enabled,
)
from dynagraph.torch.amp.autocast_mode import (
    is_autocast_enabled as is_autocast_enabled,
)
from dynagraph.torch.amp.autocast_mode import (
    set_autocast_cache_enabled as set_autocast_cache_enabled,
)
from dynagraph.torch.amp.autocast_mode import (
    set_autocast_cpu_dtype as set_autocast_cpu_dtype,
)
from dynagraph.torch.amp.autocast_mode import (
    set_autocast_cpu_enabled as set_autocast_cpu_enabled,
)
from dynagraph.torch.amp.autocast_mode import (
    set_autocast_dtype as set_autocast_dtype,
)
from dynagraph.torch.amp.autocast_mode import (
    set_autocast_enabled as set_autocast_enabled,
)
from dynagraph.torch.amp.autocast_mode import (
    set_autocast_gpu_dtype as set_autocast_gpu_dtype,
)
from dynagraph.torch.amp.grad_scaler import GradScaler as GradScaler
from dynagraph.torch.compiler import compile as compile
from dynagraph.torch.core import dtypes as _dtypes
from dynagraph.torch.core.devices import device as device
from dynagraph.torch.core.devices import get_default_device as get_default_device
from dynagraph.torch.core.devices import set_default_device as set_default_device
from dynagraph.torch.core.dtypes import (
    Size as Size,
)
from dynagraph.torch.core.dtypes import (
    can_cast as can_cast,
)
from dynagraph.torch.core.dtypes import (
    finfo as finfo,
)
from dynagraph.torch.core.dtypes import (
    get_default_dtype as get_default_dtype,
)
from dynagraph.torch.core.dtypes import (
    iinfo as iinfo,
)
from dynagraph.torch.core.dtypes import (
    promote_types as promote_types,
)
from dynagraph.torch.core.dtypes import (
    result_type as result_type,
)
from dynagraph.torch.core.dtypes import (
    set_default_dtype as set_default_dtype,
)
from dynagraph.torch.core.generator import Generator as Generator
from dynagraph.torch.core.generator import default_generator as default_generator
from dynagraph.torch.core.grad_mode import (
    enable_grad as enable_grad,
)
from dynagraph.torch.core.grad_mode import (
    inference_mode as inference_mode,
)
from dynagraph.torch.core.grad_mode import (
    is_grad_enabled as is_grad_enabled,
)
from dynagraph.torch.core.grad_mode import (
    is_inference_mode_enabled as is_inference_mode_enabled,
)
from dynagraph.torch.core.grad_mode import (
    no_grad as no_grad,
)
from dynagraph.torch.core.grad_mode import (
    set_grad_enabled as set_grad_enabled,
)
from dynagraph.torch.core.layouts import layout as layout
from dynagraph.torch.core.layouts import sparse_coo as sparse_coo
from dynagraph.torch.core.layouts import sparse_csr as sparse_csr
from dynagraph.torch.core.layouts import strided as strided
from dynagraph.torch.core.tensor import Tensor as Tensor
from dynagraph.torch.func.batch import vmap as vmap
from dynagraph.torch.functions import (
    arithmetic,
    comparisons,
    conversion,
    counting,
    creation,
    diagonals,
    elementary,
    finite_differences,
    indexing,
    joining,
    masks,
    operators,
    printing,
    products,
    rearrangements,
    reductions,
    selection,
    settings,
    shapes,
    sorting,
    splitting,
    statistics,
    ternary,
)
from dynagraph.torch.functions import foreach as _foreach  # noqa: F401  (declares its functions)
from dynagraph.torch.functions import gamma_draws as _gamma_draws  # noqa: F401  (declares its functions)
from dynagraph.torch.functions import interchange as _interchange  # noqa: F401  (declares its functions)
from dynagraph.torch.functions import legacy as _legacy  # noqa: F401  (declares its functions)
from dynagraph.torch.functions import lower_level as _lower_level  # noqa: F401  (declares its functions)
from dynagraph.torch.functions import packed_sequences as _packed_sequences  # noqa: F401  (declares its functions)
from dynagraph.torch.functions import queries as _queries  # noqa: F401  (declares its functions)
from dynagraph.torch.functions import random as _random  # noqa: F401  (declares its functions)
from dynagraph.torch.functions import recurrent as _recurrent  # noqa: F401  (declares its functions)
from dynagraph.torch.functions import removed as _removed  # noqa: F401  (declares its functions)
from dynagraph.torch.functions.common import name_for_pickles as _name_for_pickles
from dynagraph.torch.functions.common import publish as _publish
from dynagraph.torch.functions.shapes import channels_last as channels_last
from dynagraph.torch.functions.shapes import channels_last_3d as channels_last_3d
from dynagraph.torch.functions.shapes import contiguous_format as contiguous_format
from dynagraph.torch.functions.shapes import memory_format as memory_format
from dynagraph.torch.functions.shapes import preserve_format as preserve_format
from dynagraph.torch.missing import getattr_of as _getattr_of
from dynagraph.torch.random import get_rng_state as get_rng_state
from dynagraph.torch.random import initial_seed as initial_seed
from dynagraph.torch.random import manual_seed as manual_seed
from dynagraph.torch.random import seed as seed
from dynagraph.torch.random import set_rng_state as set_rng_state
from dynagraph.torch.random import thread_safe_generator as thread_safe_generator
from dynagraph.torch.storage import TypedStorage as TypedStorage
from dynagraph.torch.storage import UntypedStorage as UntypedStorage
from dynagraph.torch.version import __version__ as __version__

torch = sys.modules[__name__]  # PyTorch's has itself under its name, too
inf, nan, pi, e, newaxis = math.inf, math.nan, math.pi, math.e, None
has_lapack, has_mkl, has_openmp, has_spectral = True, False, False, True
legacy_contiguous_format = contiguous_format
for _dtype in _dtypes.ALL:
    globals()[_dtype.name] = _dtype
    if _dtype.other_name:
        globals()[_dtype.other_name] = _dtype
del arithmetic, comparisons, conversion, creation, elementary, indexing, joining, operators, printing, products, rearrangements
del reductions, settings, shapes, splitting, statistics, ternary
del counting, diagonals, finite_differences, masks, selection, sorting
_publish(globals(), "torch")
_name_for_pickles(__name__, "Tensor.", vars(Tensor))
dtype = _dtypes.dtype
__getattr__ = _getattr_of(
    __name__,
    {
        "Future": "dynagraph.torch.futures", "install": "dynagraph.torch.import_hook", "OutOfMemoryError": "dynagraph.torch.cuda",
        "load": "dynagraph.torch.serialization", "save": "dynagraph.torch.serialization",
    },
)  # fmt: skip
