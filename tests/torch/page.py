"""Which of PyTorch's names dynagraph.torch has: ``python -m tests.torch.page`` writes docs/torch.md.

- has: it is there, and computes by operations of its own;
- decomposes: it is there, and calls other functions of torch;
- not yet: it is missing.

PyTorch is not needed: `scripts/torch_names.py` has written down its names.
"""

from __future__ import annotations

import dis
import importlib
import inspect
import json
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dynagraph.torch.core import tensor as core
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions import common

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "torch.md"
KINDS = ("has", "decomposes", "not yet")
RECORDED: dict[str, Any] = json.loads((HERE / "names.json").read_text())
MISSING = object()
COMPUTES = (core.apply, core.view, core.as_view, core.wrap, core.made, core.record, core.write, common.pointwise)

HEAD = """\
# PyTorch's API

After this page you can run a script that says `import torch` on NumPy and CuPy arrays, and look up which names of PyTorch
{version} there are.

```python
import dynagraph.torch as torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
loss = (w * w).sum()
loss.backward()
assert w.grad.tolist() == [2.0, 4.0]
```

Tensors hold arrays, without copies: `torch.from_numpy(array)`, `tensor.numpy()`. Names, arguments, defaults, dtypes, views,
gradients, checks of what is written in place, and errors are PyTorch's. PyTorch is not needed, and not imported.

## Run a script

    python -m dynagraph.torch script.py [arguments]
    python -m dynagraph.torch -m module [arguments]
    python -m dynagraph.torch -c program [arguments]

runs it unmodified, as `python script.py` does: `import torch`, `import torch.nn.functional as F` and `from torch import Tensor`
give the modules of `dynagraph.torch` themselves, to the script and to the libraries that it imports. In a program of your own:

```python
import dynagraph.torch

with dynagraph.torch.install():  # or without `with`: from here on
    import torch

assert torch is dynagraph.torch
```

This is refused where PyTorch is imported already. A name that is missing is one error that says so:
`ImportError: dynagraph.torch has no torch.nn.Example; docs/torch.md lists which of PyTorch's names there are`.

`torch.compile` is `dg.compile`: `mode="max-autotune"` lets compiling take any time, `backend="eager"` gives the function itself.

Of what others have written, these have given PyTorch's numbers in small programs, without `torch.compile`: einops, torchdiffeq,
torchsde, x-transformers, vector-quantize-pytorch, lion-pytorch, rotary-embedding-torch, gpytorch, captum, normflows, nflows,
ignite, accelerate, vit-pytorch, denoising-diffusion-pytorch (both with a stand-in for torchvision), ema-pytorch, torchmetrics,
reformer-pytorch, performer-pytorch, linformer, and 150 optimizers of pytorch-optimizer, torch-optimizer, schedulefree, prodigyopt,
dadaptation and others. With `torch.compile`, forward and as training steps of several batch sizes: x-transformers, g-mlp-pytorch,
mlp-mixer-pytorch, egnn-pytorch, perceiver-pytorch, siren-pytorch, vector-quantize-pytorch, pytorch-msssim, torchdiffeq. What
calls einops is one program for each size, and the first call of a size is plain: einops remembers sizes in a cache. Not there:
e3nn (it writes code by `torch.fx`), torch-geometric (`torch.ops.aten`), tensordict (functorch's layers), transformers 5 and
opacus (parts of `torch.distributed`), torchvision's operators in C++ (`nms`). Functions do not ask for `__torch_function__`.

## Compiled functions

A function that calls `backward()` itself is one program, and with the optimizer's step a training step is. If `backward()` is
called outside, there are two:

```python
import dynagraph.torch as torch

@torch.compile(mode="max-autotune")
def loss(x, w):
    return torch.tanh(x @ w).exp().mean()

w = torch.ones(3, 2, requires_grad=True)
value = loss(torch.ones(4, 3), w)
assert value.grad_fn.name() == "CompiledFunctionBackward"
value.backward()
assert w.grad.shape == (3, 2)
```

- All operations that a call has recorded are one node of the autograd graph; a result that other results are computed from is an
  output of a node before theirs. The call keeps what a minimum cut chooses of all that the operations save: keeping costs memory
  traffic, computing again costs arithmetic. The caller's tensors are not copied.
- Backward is compiled when it is first needed, for each set of results that have a gradient and for each set of sizes (beyond eight
  it runs operation by operation). `grad_fn.joined.program` is the compiled function.
- Versions, hooks, `retain_graph` and results without a gradient are as without compiling: what one operation has saved must not be
  written to, and is freed with that operation. Errors call tensors outputs of the call.
- With `create_graph=True` the operations run backward one by one, and stand in the graph themselves from then on.
- A tensor that several operations of the call use gets one sum of their gradients. If it is used outside of the call too, the
  additions are in another order, and last bits may differ.
- Operations have a node each, as without compiling, where one is an `autograd.Function`, has hooks, or is handed on as `grad_fn`;
  under hooks of saved tensors and anomaly detection; where what was saved is written to within the call; on CUDA.
  `f.stats.not_joined` counts the reasons, and `dg.explain` prints them.

## Optimizers

```python
import dynagraph.torch as torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
optimizer = torch.optim.Adam([w], lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
for _ in range(3):
    optimizer.zero_grad()
    (w * w).sum().backward()
    optimizer.step()
    scheduler.step()
assert optimizer.state_dict()["state"][0]["step"] == 3.0
```

State dicts are PyTorch's in structure, both ways. `foreach`, `fused` and `capturable` are accepted and change nothing but where
counts of steps are kept: a step is always one kernel over all parameters of a group and dtype, on all threads, compiled in a thread
beside the first steps. With `differentiable=True` gradients go through steps. Halves are computed in float32 and rounded once.

Under `torch.compile` a training step with `optimizer.step()` is one program:

- A learning rate that changes is an input from its first change on; a tensor as `lr` is one from the beginning.
- States are made when the function is captured. Steps of LBFGS are plain, since they call their closure as often as numbers say,
  but the closure is a program.
- Steps with sparse gradients (SGD, Adagrad, SparseAdam) read and write the rows that were used, where the table lies. Rows of
  `padding_idx` and places that are added up (`coalesce`) are left out without the program knowing how many they are: a sparse
  tensor that leaves it holds them until somebody looks. Where momentum's buffer and a gradient have the same places, the plain
  function takes the call.
- Activation checkpoints are computed again within the program, which keeps nothing else for them.
- A step of a `GradScaler` takes it that all gradients are finite; one that is skipped is left to the plain function.
- `ReduceLROnPlateau.step` decides by data, in Python, when the program has run; code that reads in the same call what it decided
  is behind a break.
- `AdaptiveLogSoftmaxWithLoss` computes each cluster for all samples, up to a million scores of rare classes; beyond, it breaks.
  A batch that leaves a cluster without samples is left to the plain function.
- Parameters of a group that have had as many steps by then share what depends on that number. If they come apart, the plain
  function takes the calls (`f.stats.refusals`).

## Saving

```python
import io

import dynagraph.torch as torch

file = io.BytesIO()
torch.save({{"weight": torch.ones(2), "epoch": 3}}, file)
file.seek(0)
assert torch.load(file)["epoch"] == 3
```

Files are PyTorch's own, both ways, without PyTorch: the zip format, to the byte, and the older ones, with views, tied weights,
whole modules, optimizers and schedulers.

- **A path holds the whole new file or the old one.** Files are written beside it, brought to the disk and renamed. Checksums are
  compared when a file is read (not with `mmap=True`).
- **`weights_only=True`**, the default of `torch.load`, makes data whatever a file says: what PyTorch allows, and NumPy's arrays and
  scalars, `defaultdict`, `frozenset`, `slice`, `range` and paths. `torch.serialization.add_safe_globals` allows classes of yours.
  A file that is damaged, cut off or hostile is one `torch.serialization.LoadError` (a RuntimeError and UnpicklingError) or
  UnpicklingError, before memory is taken for it.
- **`.safetensors` and `.npz`** files are read by `torch.load`, and written by `torch.serialization.safetensors.save_file` and
  `torch.serialization.npz.save_file`.
- **Many files:** `torch.distributed.checkpoint.save` and `load` write Hugging Face's files and index, by any number of ranks, and
  read them by any other: a rank that holds a part of a tensor has a `torch.distributed.checkpoint.Part` in its state dict.
  PyTorch's ``.distcp`` files are not read.
- `torch.hub.load_state_dict_from_url` has PyTorch's default, ``weights_only=False``: ask for True where you can.

## Large tensors

Operations on tensors of 131072 elements and more run as kernels on all threads (`torch.set_num_threads`), in memory that is used
again. Each is compiled by itself, for a dtype and a layout; later processes find it in the kernel cache, without the C compiler.

- Where the kernel gives NumPy's bits (arithmetic, comparisons, sums, means, `relu`...), calls run through NumPy while
  a thread compiles it. With complex numbers these stay with NumPy.
- Where last places may differ ([numerics.md](numerics.md): `exp`, `tanh`, `softmax`, `gelu`, `pow`...; the zero that `max` chooses
  of 0.0 and -0.0), the first call waits for the kernel, some tenths of a second, and all calls run by it. So no result depends on
  when a kernel was ready, but those of smaller tensors, which are NumPy's, may differ in last places.

This costs no function's compile budget. Without a C compiler, or where a kernel cannot be compiled, all calls run through NumPy;
`dynagraph.torch.core.large.kernels()` has the `stats` of each. Under `dg.disable()` and `dg.stance("force_eager")` NumPy computes.

## On a GPU

Tensors on a GPU hold arrays of CuPy (`pip install 'dynagraph[cuda12]'`), and functions of them are compiled as those of CuPy's
arrays are ([cupy.md](cupy.md)): a training step with `backward()`, updates in place and dropout is one program of CUDA kernels and
matrix products.

- **Values** are those of the plain call up to rounding. New tensors may lie in another order in memory than the plain call's.
- **Errors about values** (indices and targets out of bounds, probabilities outside of 0 to 1) are raised by the call that is
  given them, with the same text, in plain and compiled calls; arguments are left as the plain call leaves them. (PyTorch's kernels
  stop the process's CUDA context at some later time.) A compiled function looks at such values first, and the host waits for that
  while the GPU computes what writes to no argument; with `DYNAGRAPH_CUDA_ERRORS=later` nobody waits
  ([cuda.md](cuda.md#errors-about-values)). A step of `GradScaler` waits until its gradients are known to be finite.
- **These break:** what the host has to know (`item()`, `if x.sum() > 0:`, `nonzero`, `masked_select`, `unique`, `x[mask]`), checks
  of `torch.linalg` for singular matrices, tensors of the CPU beside those of the GPU (but for numbers), new tensors of another
  GPU, `as_strided` and `unfold`, views as another dtype, `ctc_loss`.

## What differs

- **Random numbers.** `torch.manual_seed` gives reproducible numbers, the same on CPU and GPU, eager and compiled, but not
  PyTorch's own: the generator is Philox, counted by draws. `torch.random.torch_compatible(True)` gives PyTorch's CPU stream for
  `rand`, `randn`, `randint`, `randperm` and what is made of them.
- **Last bits.** Sums and matrix products are NumPy's, whose order of additions is another one than PyTorch's. Halves are computed
  in float32 and rounded once.
- **GELU of infinity** is infinity for any number of elements. PyTorch's float32 kernel on the CPU gives NaN from two elements on.
- **Autocast** is there for "cpu" and "cuda", by PyTorch's lists of operators. Gradients take no notice of a region that
  `backward()` is called in. A compiled function casts a weight once in each region that it begins itself; in one that began outside
  it casts where it computes.
- **Distributions** draw gamma, beta and Dirichlet numbers by other steps than PyTorch, and their gradients are exact to some ten
  places.
- **TorchScript** is not there: `torch.jit.script` and the decorators around it give their function back, `torch.jit.trace` and
  `save` are refused.
- **Other libraries.** `torch.backends` answers that cuDNN, MKL, oneDNN and Apple's GPUs are not used; its flags are kept and change
  nothing. Extensions in C++ and CUDA are refused: `torch.ops.load_library` raises OSError, `torch.utils.cpp_extension`
  RuntimeError. Operators in Python (`torch.library`) work.
- **Threads.** Operations run in the thread that calls them. `torch.set_num_threads` is `dg.config.threads`, of compiled calls and
  of large tensors.
- **Left out of the list** are the names of kernels of other libraries (`cudnn_*`, `miopen_*`, `mkldnn_*`, `fbgemm_*`), of quantized
  tensors, and of TorchScript's types.

## Names

`python -m tests.torch.page` writes this page, and a test keeps it up to date.

- **has**: it is there, and computes by operations of its own;
- **decomposes**: it is there, and calls other functions of this list;
- **not yet**: it is missing.
"""


def owner_of(namespace: str) -> Any:
    """What holds the names of a namespace; None where it is missing."""
    found = importlib.import_module("dynagraph.torch")
    for name in namespace.split(".")[1:]:
        found = getattr(found, name, None)
    return found


def kind_of(owner: Any, name: str) -> str:
    value = inspect.getattr_static(owner, name, MISSING) if isinstance(owner, type) else getattr(owner, name, MISSING)
    if owner is None or value is MISSING or getattr(value, "is_refusal", False):
        return "not yet"
    function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    return "decomposes" if isinstance(function, types.FunctionType) and decomposes(function, name) else "has"


def decomposes(function: types.FunctionType, name: str) -> bool:
    """Whether a function calls other functions of torch, and applies no primitive itself."""
    found = set(uses(function, name, set()))
    return "function" in found and "primitive" not in found


def uses(function: types.FunctionType, own: str, seen: set[int]) -> Iterator[str]:
    """What the function of a name is made of, with its helpers and its dense form: primitives, and functions of torch."""
    if id(function) in seen:
        return
    seen.add(id(function))
    if function.__closure__ is not None:  # a form of another function, such as the one with `out=`
        for cell in function.__closure__:
            if isinstance(cell.cell_contents, types.FunctionType):
                yield from uses(cell.cell_contents, own, seen)
    of_module = False  # the attribute is one of a module
    for opname, name in _names(function.__code__):
        value = function.__globals__.get(name) if opname == "LOAD_GLOBAL" else None
        if opname == "LOAD_GLOBAL":
            if any(value is computes for computes in COMPUTES):  # some are in C
                yield "primitive"
            elif isinstance(value, types.FunctionType):
                yield from _uses_of(value, own, seen)
        elif not of_module and isinstance(vars(Tensor).get(name), types.FunctionType) and name not in _OF_CONTAINERS:
            yield "function"
        of_module = isinstance(value, types.ModuleType)


def _uses_of(called: types.FunctionType, own: str, seen: set[int]) -> Iterator[str]:
    if is_of_torch(called) and called.__name__ not in (own, own.rstrip("_")):
        yield "function"
    elif module_of(called).startswith("dynagraph.torch.") and not module_of(called).startswith(_CHECKS):
        yield from uses(called, own, seen)


def module_of(function: types.FunctionType) -> str:
    """Where a function is written, which its `__module__` does not say if it is named by where it is found."""
    return str(inspect.unwrap(function).__globals__["__name__"])


_CHECKS = (common.__name__, "dynagraph.torch.core.")  # of arguments, and casts of them
# methods of tensors whose names those of other objects have, too
_OF_CONTAINERS = frozenset({
    "copy", "dim", "index", "item", "numel", "numpy", "size", "sort", "split", "to", "tolist", "type", "values",
})  # fmt: skip


def _names(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """The globals and attributes that code reads, in what it defines as well."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"):
            yield instruction.opname, instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


_declared: set[int] = set()


def is_of_torch(function: types.FunctionType) -> bool:
    """Whether a function is one of torch's own: in itself, or what its form with ``out=`` calls."""
    if not _declared:
        waiting = [*(f for functions in common.NAMESPACES.values() for f in functions.values()), *vars(Tensor).values()]
        while waiting:
            value = waiting.pop()
            if isinstance(value, types.FunctionType) and id(value) not in _declared:
                _declared.add(id(value))
                waiting += [cell.cell_contents for cell in value.__closure__ or ()] if module_of(value) != core.__name__ else []
    return id(function) in _declared


def table() -> dict[str, dict[str, list[str]]]:
    """Of each namespace: its names, by what becomes of them."""
    found: dict[str, dict[str, list[str]]] = {}
    for namespace, names in RECORDED["names"].items():
        owner = owner_of(namespace)
        found[namespace] = {kind: [] for kind in KINDS}
        for name in names.split():
            found[namespace][kind_of(owner, name)].append(name)
    return found


def page() -> str:
    """The text of docs/torch.md."""
    rows = table()
    lines = [HEAD.format(version=RECORDED["torch"])]
    lines += [f"| | {' | '.join(KINDS)} |", "|---|---|---|---|"]
    lines += [f"| {namespace} | {' | '.join(str(len(kinds[kind])) for kind in KINDS)} |" for namespace, kinds in rows.items()]
    total = {kind: sum(len(kinds[kind]) for kinds in rows.values()) for kind in KINDS}
    lines += [f"| all | {' | '.join(str(total[kind]) for kind in KINDS)} |"]
    for namespace, kinds in rows.items():
        lines += ["", f"### {namespace}"]
        for kind in KINDS:
            if kinds[kind]:
                text = " ".join(f"`{name}`" for name in kinds[kind])
                lines += ["", *textwrap.wrap(f"**{kind}**: {text}", 132, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        print(page(), end="")
    else:
        PAGE.write_text(page())
        print(PAGE.relative_to(Path.cwd()))
