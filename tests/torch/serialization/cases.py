"""Objects to save, made by either torch, and what of them must come back."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.torch.outcomes import array_of

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


def _values(torch: Any, dtype: str) -> Any:
    return torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, dtype))


def _views(torch: Any) -> Any:
    x = torch.arange(24.0).reshape(2, 3, 4)
    return {"x": x, "part": x[1], "t": x.permute(2, 0, 1), "steps": x[:, ::2, 1:3], "expanded": x[0, 0].expand(5, 4), "same": x}


def _tied(torch: Any) -> Any:
    model = torch.nn.Sequential(OrderedDict(a=torch.nn.Linear(2, 2, bias=False), b=torch.nn.Linear(2, 2, bias=False)))
    with torch.no_grad():
        model.a.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    model.b.weight = model.a.weight
    return model.state_dict()


def _leaf(torch: Any) -> Any:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    return [x, torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2), requires_grad=False)]


def _attributes(torch: Any) -> Any:
    x = torch.ones(2)
    x.note = "kept"
    p = torch.nn.Parameter(torch.zeros(1))
    p.tag = 3
    return [x, p]


def _training(torch: Any) -> Any:
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    optimizer = torch.optim.SGD([weight], lr=0.25, momentum=0.5)
    (weight * weight).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    return {"epoch": 3, "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "history": [0.5, 0.25], "w": weight}


def _norm(torch: Any) -> Any:
    return torch.nn.BatchNorm1d(3).state_dict()  # with `_metadata`


# data that weights_only=True takes in both packages
CASES: dict[str, Callable[[Any], Any]] = {
    **{d: (lambda torch, d=d: _values(torch, d)) for d in DTYPES},
    **{d: (lambda torch, d=d: _values(torch, "uint8").to(getattr(torch, d))) for d in ("uint16", "uint32", "uint64")},
    "no elements": lambda torch: [torch.zeros(0), torch.zeros(2, 0, 3), torch.tensor(2.5)],
    "views": _views, "tied": _tied, "leaf": _leaf, "attributes": _attributes, "training": _training, "metadata": _norm,
    "numbers": lambda torch: [None, True, 0, -1, 255, 65536, -(1 << 40), 1 << 70, 1.5, float("inf"), 2 + 3j, "text",
    "ü", b"bytes\xff"],
    "containers": lambda torch: {"l": [1, [2]], "t": (1, (2, 3), ()), "s": {1, 2}, "o": OrderedDict(a=1),
    "c": Counter("aab"), 3: {}},
    "bytearray": lambda torch: bytearray(b"abc"),
    "constants": lambda torch: [torch.float32, torch.bfloat16, torch.Size([2, 3]), torch.strided],
    "devices": lambda torch: [torch.device("cpu"), torch.device("cuda", 1)],
    "storage": lambda torch: torch.arange(4, dtype=torch.uint8).untyped_storage(),
    "sparse": lambda torch: torch.tensor([[0.0, 3.0], [4.0, 0.0]]).to_sparse(),
    "channels last": lambda torch: torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "many": lambda torch: [torch.full((k % 5,), float(k)) for k in range(40)],
}  # fmt: skip
# what PyTorch loads with weights_only=False alone, and we as data
DATA: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda torch: [np.arange(6.0).reshape(2, 3).T, np.array(["ab", "c"]), np.array(5), np.zeros((0, 2), "i2")],
    "numpy scalars": lambda torch: [np.float32(1.5), np.int64(7), np.bool_(True), np.complex64(1j)],
    "dates": lambda torch: np.array(["2020-01-02"], "M8[D]"),
    "dtypes": lambda torch: [np.dtype("f4"), np.dtype(">i2"), np.dtype("S3")],
    "defaultdict": lambda torch: [defaultdict(list, a=[1]), defaultdict(int), defaultdict(None)],
    "ranges": lambda torch: [range(2, 10, 3), slice(1, None, 2), frozenset({1, 2})],
}  # fmt: skip
# what is code, by weights_only=False
CODE: dict[str, Callable[[Any], Any]] = {
    "linear": lambda torch: _filled(torch, torch.nn.Linear(3, 2)),
    "recurrent": lambda torch: _filled(torch, torch.nn.LSTM(3, 2, batch_first=True)),
    "attention": lambda torch: _filled(torch, torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)).eval(),
    "convolution": lambda torch: _filled(
        torch, torch.nn.Sequential(torch.nn.Conv1d(3, 2, 2), torch.nn.BatchNorm1d(2), torch.nn.ReLU())
    ),
    "optimizer": lambda torch: torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=0.5),
}


def _filled(torch: Any, module: Any) -> Any:
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(((torch.arange(p.numel()) + k) % 7).reshape(p.shape) / 8)
    return module


class Describe:
    """An object as nested plain data, in which tensors of one memory have one number."""

    def __init__(self, torch: Any):
        self.torch = torch
        self.memories: dict[int, int] = {}

    def __call__(self, value: Any) -> Any:
        torch = self.torch
        if isinstance(value, torch.nn.Module):
            return ["module", repr(value), self(dict(value.state_dict())), value.training]
        if isinstance(value, torch.optim.Optimizer):
            return ["optimizer", repr(value), self(value.state_dict())]
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (torch.UntypedStorage, torch.storage.TypedStorage)):  # files do not tell them apart
            return ["storage", value.untyped().tolist()]
        if isinstance(value, np.ndarray):
            return ["array", str(value.dtype), value.tolist(), value.flags.c_contiguous]
        if isinstance(value, np.generic):
            return [type(value).__name__, value.item()]
        if isinstance(value, dict):
            items = [[self(k), self(v)] for k, v in value.items()]
            factory = getattr(value, "default_factory", None)
            metadata = getattr(value, "_metadata", None)
            return [type(value).__name__, items, repr(factory), metadata and self(dict(metadata))]
        if isinstance(value, (list, tuple)):
            return [type(value).__name__, [self(v) for v in value]]
        if isinstance(value, (set, frozenset)):
            return [type(value).__name__, sorted(map(repr, value))]
        return [type(value).__name__, repr(value)]

    def tensor(self, x: Any) -> Any:
        """A tensor, with where it lies in which memory."""
        found = [
            type(x).__name__.replace("COO", ""),
            str(x.dtype),
            list(x.shape),
            bool(x.requires_grad),
            str(x.layout),
            dict(sorted(attributes(x).items())),
        ]
        if x.layout != self.torch.strided:
            return [*found, self.tensor(x.to_dense())]
        start = x.untyped_storage().data_ptr()
        memory = self.memories.setdefault(start, len(self.memories)) if start else -1
        place = [list(x.stride()), x.storage_offset(), x.untyped_storage().nbytes(), memory] if x.numel() else []
        return [*found, place, array_of(self.torch, x).tolist()]


def attributes(x: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(x).items() if k in ("note", "tag")}


def outputs(torch: Any, module: Any) -> Any:
    """What a module gives for a fixed input."""
    if not isinstance(module, torch.nn.Module):
        return None
    width = 4 if isinstance(module, torch.nn.TransformerEncoderLayer) else 3
    x = (torch.arange(2 * 3 * width) % 5).reshape(2, 3, width) / 4
    found = module(x)
    return np.asarray((found[0] if isinstance(found, tuple) else found).detach().numpy())
