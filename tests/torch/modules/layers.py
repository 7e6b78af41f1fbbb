"""Cases of layers: a layer by the text that makes it, and its inputs.

    layer("Conv2d(3, 8, 3, padding=1)", T(2, 3, 5, 5))
    layer("BatchNorm1d(3)", T(4, 3))                    in training, called twice
    layer("BatchNorm1d(3)", T(4, 3), train=False)
    wrong("Linear(3, 4)", T(2, 2))                      an error, with its text

The text is evaluated with the names of `torch.nn`, and `torch`.  Parameters and buffers have the same numbers in both torches.
Compared are the results, their gradients by inputs and parameters, buffers after the calls, `repr`, the names and versions of the
state dict.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tests.torch.table import Case, program


class _Names(dict[str, Any]):
    """The names of a torch's nn."""

    def __init__(self, torch: Any):
        super().__init__(torch=torch, nn=torch.nn)

    def __missing__(self, name: str) -> Any:
        try:
            return getattr(self["nn"], name)
        except AttributeError:
            raise KeyError(name) from None


def numbers_for(name: str, shape: Any) -> np.ndarray:
    """The numbers of a parameter or buffer: those of variances are positive."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {tuple(shape)}".encode()))
    return rng.uniform(0.5, 2, shape) if "var" in name else rng.standard_normal(shape)


def fill(torch: Any, module: Any) -> Any:
    """Give all parameters and buffers their numbers."""
    with torch.no_grad():
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            if not torch.nn.parameter.is_lazy(value) and value.is_floating_point():
                value.copy_(torch.from_numpy(np.asarray(numbers_for(name, value.shape))))
    return module


def made(torch: Any, text: str, dtype: Any, train: bool = True) -> Any:
    """The layer that a text makes."""
    return fill(torch, eval(text, {}, _Names(torch)).to(dtype)).train(train)


def dtype_for(torch: Any, inputs: Any) -> Any:
    """The dtype of a layer for these inputs: that of the first that has numbers."""
    return next((x.dtype for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()), torch.float64)


def tensors_in(torch: Any, value: Any) -> list[Any]:
    """The results of a call that gradients can be asked of."""
    several = value if isinstance(value, (tuple, list)) else (value,)
    return [t for t in several if isinstance(t, torch.Tensor) and t.requires_grad]


def weights_for(torch: Any, out: Any) -> Any:
    """What results are weighted by before they are added up."""
    return torch.arange(out.numel(), dtype=torch.float64).add(1).sin().to(out.dtype).reshape(out.shape)


def called(torch: Any, module: Any, inputs: Any, leaves: Any) -> Any:
    """The result of a call, and its gradients by leaves."""
    result = module(*inputs)
    outs = tensors_in(torch, result)
    if not outs or not leaves:
        return result, []
    weights = [weights_for(torch, out) for out in outs]
    return result, torch.autograd.grad(outs, leaves, weights, allow_unused=True, retain_graph=True)


def about(module: Any) -> list[Any]:
    """What a layer looks like from outside, and its buffers."""
    state = module.state_dict()
    versions = [[path, *map(str, sorted(data.items()))] for path, data in state._metadata.items()]
    buffers = [b.detach().clone() for b in module.buffers()]
    return [repr(module), module.extra_repr(), type(module).__name__, list(state), versions, buffers]


def layer(text: str, *inputs: Any, train: bool = True, **options: Any) -> Case:
    """A row: see this module's docstring."""
    about_mode = "" if train else " in evaluation"
    in_place = "inplace=True" in text

    def run(torch: Any, *given: Any) -> Any:
        module = made(torch, text, dtype_for(torch, given), train)
        results = []
        for _ in range(2 if train else 1):
            arguments = [x.clone() if in_place and isinstance(x, torch.Tensor) else x for x in given]
            leaves = [p for p in module.parameters() if p.requires_grad and not torch.nn.parameter.is_lazy(p)]
            result, gradients = called(torch, module, arguments, leaves)
            results += [result, [None if g is None else g.detach() for g in gradients]]
        return [*results, *about(module)]

    made_row = program(f"{text}{about_mode}", run, *inputs, **{"_dtypes": "float32", "_second": False, **options})
    made_row.options["layer"] = (text, train)
    return made_row


def wrong(text: str, *inputs: Any, train: bool = True, **options: Any) -> Case:
    """A row that must raise, when the layer is made or called, with PyTorch's text."""
    row = layer(text, *inputs, train=train, **{"_text": True, **options})
    row.raises = True
    return row
