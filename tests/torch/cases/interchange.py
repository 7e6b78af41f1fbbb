"""Storages, pickles and copies, constructors by type, DLPack and NumPy's protocols."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.torch.table import Case, T, program


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def changed(x: Any, change: Callable[[Any], Any]) -> Any:
    change(x)
    return x


def _with_views(torch: Any, change: Callable[[Any], Any]) -> Any:
    """Views of a tensor whose storage gets other memory: what they are, and after a write to the tensor."""
    x = torch.arange(8.0)
    views = [x[2:5], x.view(2, 4)[1, ::2], x.detach(), x[:0]]
    change(x)
    before = [v.tolist() for v in views]
    x.view(-1)[4] = 50
    return [before, views, x.view(-1)[:8], [v.is_shared() for v in views], views[0].untyped_storage() is x.untyped_storage()]


def quietly(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Without the warnings of deprecated storages."""

    def run(*args: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compute(*args)

    return run


def typed(torch: Any) -> Any:
    return torch.arange(6.0).reshape(2, 3).storage()


def raises(name: str, compute: Callable[..., Any], *args: Any) -> Case:
    made = program(name, compute, *args)
    made.raises = True
    return made


def attributes(x: Any, **given: Any) -> Any:
    for name, value in given.items():
        setattr(x, name, value)
    return x


STORAGES: dict[str, Callable[..., Any]] = {
    "sizes": lambda torch: [f(torch.ones(2, 3)[1].untyped_storage()) for f in (len, lambda s: (s.size(), s.nbytes(), s.element_size()))],
    "text": lambda torch: str(torch.arange(3.0).untyped_storage()),
    "items": lambda torch: [torch.arange(3.0).untyped_storage()[k] for k in (5, -1, 7)],
    "slice": lambda torch: torch.arange(3.0).untyped_storage()[4:8].tolist(),
    "about": lambda torch: (lambda s: [str(s.device), s.is_cuda, s.is_shared(), s.type(), s.resizable()])(torch.ones(2).untyped_storage()),
    "of views": lambda torch: (lambda x: x[1].untyped_storage() is x.untyped_storage())(torch.ones(2, 3)),
    "equal": lambda torch: (lambda x: [x.untyped_storage() == x.untyped_storage(), x.untyped_storage() == x.clone().untyped_storage()])(
        torch.ones(2)
    ),
    "data_ptr": lambda torch: (lambda x: x.untyped_storage().data_ptr() == x.data_ptr())(torch.ones(2)),
    "fill_": lambda torch: changed(torch.ones(3), lambda x: x.untyped_storage().fill_(64)),
    "write": lambda torch: changed(torch.ones(3), lambda x: x.untyped_storage().__setitem__(3, 64)),
    "copy_": lambda torch: changed(torch.zeros(3), lambda x: x.untyped_storage().copy_(torch.ones(3).untyped_storage())),
    "resize_": lambda torch: changed(torch.arange(4.0), lambda x: x.untyped_storage().resize_(32)),
    "resize_ and back": lambda torch: changed(
        torch.arange(4.0), lambda x: [x.untyped_storage().resize_(0), x.untyped_storage().resize_(16), x.copy_(torch.ones(4))]
    ),
    "typed": lambda torch: (lambda s: [len(s), s.size(), s.nbytes(), s[1], s[-1], s.tolist(), s.element_size(), s.type(), str(s)])(
        typed(torch)
    ),
    "typed casts": lambda torch: [typed(torch).double().tolist(), typed(torch).half().type(), typed(torch).bool()[0]],
    "typed fill_": lambda torch: changed(torch.ones(3), lambda x: x.storage().fill_(2)),
    "by type": lambda torch: [torch.FloatStorage([1, 2]).tolist(), torch.LongStorage(3).size(), torch.BoolStorage([True]).type()],
    "isinstance": lambda torch: [isinstance(typed(torch), kind) for kind in (torch.FloatStorage, torch.DoubleStorage)],
    "from_buffer": lambda torch: torch.FloatStorage.from_buffer(np.ones(2, ">f4").tobytes(), "big").tolist(),
    "is_storage": lambda torch: [torch.is_storage(v) for v in (typed(torch), torch.ones(2).untyped_storage(), torch.ones(2))],
    "set_": lambda torch: torch.empty(0).set_(torch.arange(6.0).untyped_storage(), 1, (2,), (2,)),
    "set_ all": lambda torch: [torch.empty(0).set_(torch.arange(6.0).untyped_storage()), torch.empty(0).set_(typed(torch))],
    "set_ tensor": lambda torch: torch.empty(0).set_(torch.arange(6.0).reshape(2, 3).t()),
    "is_set_to": lambda torch: (lambda x: [x.is_set_to(y) for y in (x, x.view(-1), x.clone(), x[:], x.T)])(torch.ones(2, 2)),
    "set_ nothing": lambda torch: torch.ones(3).set_(),
    "tensor of storage": lambda torch: [torch.Tensor(torch.ones(2).untyped_storage()), torch.FloatTensor(typed(torch))],
    "resize_ of a tensor with views": lambda torch: _with_views(torch, lambda x: x.untyped_storage().resize_(40)),
    "resize_ to nothing and back, with views": lambda torch: _with_views(
        torch, lambda x: [x.untyped_storage().resize_(0), x.untyped_storage().resize_(32), x.copy_(torch.arange(8.0) * 2)]
    ),
    "resize_ of a tensor larger, with views": lambda torch: _with_views(torch, lambda x: x.resize_(2, 5)),
    "share_memory_ of a tensor with views": lambda torch: _with_views(torch, lambda x: x.share_memory_()),
    "share_memory_ of the storage of a view": lambda torch: _with_views(torch, lambda x: x[1:].untyped_storage().share_memory_()),
    "share_memory_": lambda torch: (lambda x: [x.is_shared(), x.share_memory_() is x, x.is_shared(), x])(torch.ones(3)),
}
STORAGE_ERRORS: dict[str, Callable[..., Any]] = {
    "index": lambda torch: torch.ones(2).untyped_storage()[8],
    "step": lambda torch: torch.ones(2).untyped_storage()[0:4:2],
    "copy_ of another size": lambda torch: torch.ones(3).untyped_storage().copy_(torch.ones(2).untyped_storage()),
    "set_ of another dtype": lambda torch: torch.empty(0, dtype=torch.int64).set_(torch.ones(2)),
    "set_ of another storage": lambda torch: torch.empty(0, dtype=torch.int64).set_(typed(torch)),
}
COPIES: dict[str, Callable[..., Any]] = {
    "pickle": lambda torch: [again(torch.arange(6).reshape(2, 3).t()), again(torch.tensor(3.0)), again(torch.zeros(0, 3))],
    "pickle dtypes": lambda torch: [again(torch.ones(2, dtype=getattr(torch, d))) for d in ("bfloat16", "float16", "bool", "complex64", "int8")],
    "pickle of expanded": lambda torch: again(torch.ones(1, 3).expand(4, 3)).stride(),
    "pickle of a part": lambda torch: again(torch.arange(10.0)[2:4]).untyped_storage().nbytes(),
    "pickle of a leaf": lambda torch: again(torch.ones(2, requires_grad=True)),
    "pickle of a result": lambda torch: again(torch.ones(2, requires_grad=True) * 2).is_leaf,
    "pickle of attributes": lambda torch: again(attributes(torch.ones(2), foo=3)).foo,
    "pickle of others": lambda torch: [
        type(again(torch.Size([1, 2]))).__name__, again(torch.Size([1, 2])),
        *(again(v) is v for v in (torch.float32, torch.int64, torch.strided, torch.sparse_coo)), again(torch.device("cpu")),
    ],
    "copy": lambda torch: (lambda x: [copy.copy(x) is x, copy.copy(x).fill_(2), x])(torch.ones(2)),
    "deepcopy": lambda torch: [copy.deepcopy(torch.arange(6.0).reshape(2, 3).t()), copy.deepcopy(torch.ones(2, requires_grad=True))],
    "deepcopy of a part": lambda torch: copy.deepcopy(torch.arange(10.0)[2:4]).untyped_storage().nbytes(),
    "deepcopy of views": lambda torch: (lambda x: changed(copy.deepcopy([x, x[1:], x]), lambda c: c[0].fill_(5)))(torch.ones(3)),
    "deepcopy of attributes": lambda torch: copy.deepcopy(attributes(torch.ones(2), foo=[3])).foo,
    "deepcopy of a gradient": lambda torch: copy.deepcopy(attributes(torch.ones(2, requires_grad=True), grad=torch.ones(2))).grad,
    "deepcopy of dtypes": lambda torch: [copy.deepcopy(v) is v for v in (torch.float32, torch.strided)],
}
CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "sizes": lambda torch: [tuple(f.shape) for f in (torch.Tensor(2, 3), torch.Tensor(torch.Size([2])), torch.FloatTensor(5))],
    "size=": lambda torch: [tuple(torch.FloatTensor(size=(2,)).shape), tuple(torch.Tensor(2, device="cpu").shape)],
    "nothing": lambda torch: [torch.Tensor(), torch.LongTensor()],
    "data": lambda torch: [torch.Tensor([[1, 2], [3, 4]]), torch.Tensor((2, 3)), torch.Tensor([]), torch.Tensor(range(3))],
    "by type": lambda torch: [torch.LongTensor([1, 2]), torch.BoolTensor([1, 0]), torch.HalfTensor([1, 2]), torch.DoubleTensor([1.5])],
    "arrays": lambda torch: [torch.Tensor(np.ones(2)), torch.LongTensor(np.ones(2)), torch.LongTensor(range(3))],
    "tensors": lambda torch: [torch.FloatTensor(torch.ones(2)), torch.Tensor(torch.ones(2, dtype=torch.int64))],
    "lists of tensors": lambda torch: torch.FloatTensor([torch.tensor(1.0), 2]),
    "new": lambda torch: [torch.ones(2).new([1, 2]), torch.ones(2).new(), torch.ones(2).new(torch.ones(3)), torch.ones(1).new(2).shape],
    "type": lambda torch: [torch.ones(1).type(torch.DoubleTensor), torch.tensor(1).type("torch.FloatTensor"), torch.ones(1).type()],
    "isinstance": lambda torch: [isinstance(torch.ones(1), kind) for kind in (torch.FloatTensor, torch.LongTensor, torch.DoubleTensor)],
    "is no subclass": lambda torch: issubclass(torch.FloatTensor, torch.Tensor),
    "texts": lambda torch: [str(torch.FloatTensor), torch.FloatTensor.dtype, torch.LongTensor.is_cuda],
    "default type": lambda torch: [
        torch.set_default_tensor_type(torch.DoubleTensor), torch.Tensor([1]), torch.set_default_tensor_type("torch.FloatTensor"),
        torch.Tensor([1]),
    ],
    "default device": lambda torch: str(torch.get_default_device()),
}  # fmt: skip
CONSTRUCTOR_ERRORS: dict[str, Callable[..., Any]] = {
    "float": lambda torch: torch.Tensor(3.0),
    "bool": lambda torch: torch.FloatTensor(True),
    "text": lambda torch: torch.FloatTensor("a"),
    "negative": lambda torch: torch.Tensor(-1),
    "dtype": lambda torch: torch.Tensor([1.0], dtype=torch.float64),
    "mixed": lambda torch: torch.Tensor(2, "a"),
    "ragged": lambda torch: torch.Tensor([[1, 2], [3]]),
    "too large": lambda torch: torch.ByteTensor([1, 300]),
    "tensor of another dtype": lambda torch: torch.FloatTensor(torch.ones(2, dtype=torch.float64)),
    "new of another dtype": lambda torch: torch.tensor([1]).new(torch.ones(2)),
    "device": lambda torch: torch.Tensor(2, 3, device="cuda"),
    "default of integers": lambda torch: torch.set_default_tensor_type(torch.LongTensor),
    "default of no type": lambda torch: torch.set_default_tensor_type("foo"),
}
EXCHANGE: dict[str, Callable[..., Any]] = {
    "numpy takes": lambda torch: (lambda x: changed(x, lambda y: np.from_dlpack(y).fill(4)))(torch.ones(2, 3)),
    "numpy gives": lambda torch: torch.from_dlpack(np.arange(6).reshape(2, 3).T),
    "capsule": lambda torch: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(torch.ones(2))),
    "tensor": lambda torch: (lambda x: torch.from_dlpack(x).data_ptr() == x.data_ptr())(torch.ones(2)),
    "copy": lambda torch: (lambda x: torch.from_dlpack(x, copy=True).data_ptr() == x.data_ptr())(torch.ones(2)),
    "device": lambda torch: [int(v) for v in torch.ones(2).__dlpack_device__()],
    "array": lambda torch: [np.asarray(torch.ones(2)), np.array(torch.ones(2), dtype=np.int32), np.add(np.ones(2), torch.ones(2))],
    "no cuda": lambda torch: hasattr(torch.ones(2), "__cuda_array_interface__"),
}
EXCHANGE_ERRORS: dict[str, Callable[..., Any]] = {
    "requires grad": lambda torch: np.from_dlpack(torch.ones(2, requires_grad=True)),
    "asarray requires grad": lambda torch: np.asarray(torch.ones(2, requires_grad=True)),
    "no such object": lambda torch: torch.from_dlpack(3),
}
GROUPS = (
    ("storage", STORAGES, STORAGE_ERRORS),
    ("copies", COPIES, {"deepcopy of a result": lambda torch: copy.deepcopy(torch.ones(2, requires_grad=True) * 2)}),
    ("constructor", CONSTRUCTORS, CONSTRUCTOR_ERRORS),
    ("exchange", EXCHANGE, EXCHANGE_ERRORS),
)
CASES: list[Case] = [
    *(program(f"{group} {name}", quietly(run)) for group, rows, _ in GROUPS for name, run in rows.items()),
    *(raises(f"{group} {name}", quietly(run)) for group, _, rows in GROUPS for name, run in rows.items()),
    program("pickle keeps requires_grad", lambda torch, x: again(x.detach()), T(2, 3, layout="T"), _grad=False, _shares=False),
]
