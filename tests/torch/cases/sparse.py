"""Sparse tensors: layouts, products, sums, rearrangements, texts, and gradients by their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.torch.table import Case, T, program

PLACES = [[0, 1, 1], [2, 0, 2]]
TWICE = [[0, 0, 1], [1, 1, 0]]  # one place has two values


def parts(x: Any) -> Any:
    """A sparse tensor, or several, as strided ones."""
    if isinstance(x, (list, tuple)):
        return [parts(v) for v in x]
    layout = str(getattr(x, "layout", ""))
    if layout == "torch.sparse_coo":
        return [x._indices(), x._values(), list(x.shape), x.is_coalesced(), layout]
    if layout == "torch.sparse_csr":
        return [x.crow_indices(), x.col_indices(), x.values(), list(x.shape), layout]
    return x


def coo(torch: Any, **options: Any) -> Any:
    return torch.sparse_coo_tensor(PLACES, [3.0, 4.0, 5.0], (2, 3), **options)


def csr(torch: Any, **options: Any) -> Any:
    return torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], (2, 3), **options)


def hybrid(torch: Any) -> Any:
    return torch.sparse_coo_tensor([[0, 1]], torch.ones(2, 2), (3, 2))


def dense(torch: Any, *shape: int) -> Any:
    return torch.arange(float(shape[0] * shape[1])).reshape(shape)


MAKING: dict[str, Callable[..., Any]] = {
    "coo": lambda torch: coo(torch),
    "coo of tensors": lambda torch: torch.sparse_coo_tensor(torch.tensor(PLACES), torch.tensor([3.0, 4.0, 5.0])),
    "coo of sizes": lambda torch: [torch.sparse_coo_tensor(size=(2, 3)), torch.sparse_coo_tensor((2, 3))],
    "coo of nothing": lambda torch: torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.int64), [], (2, 3)),
    "coo with dtype": lambda torch: torch.sparse_coo_tensor([[0, 1]], [1, 2], dtype=torch.float64),
    "coo with requires_grad": lambda torch: coo(torch, requires_grad=True).requires_grad,
    "hybrid": lambda torch: [hybrid(torch), hybrid(torch).sparse_dim(), hybrid(torch).dense_dim(), hybrid(torch).to_dense()],
    "csr": lambda torch: [csr(torch), csr(torch).to_dense()],
    "csr of int32": lambda torch: torch.sparse_csr_tensor(
        torch.tensor([0, 1], dtype=torch.int32), torch.tensor([1], dtype=torch.int32), torch.tensor([2.0]), (1, 2)
    ),
    "coalesce": lambda torch: torch.sparse_coo_tensor(TWICE, [1.0, 2.0, 3.0]).coalesce(),
    "coalesce bools": lambda torch: torch.sparse_coo_tensor([[0, 0]], [True, False]).coalesce(),
    "is_coalesced": lambda torch: [torch.sparse_coo_tensor([[1]], [1.0], (2,)).is_coalesced(), coo(torch).is_coalesced()],
    "to_sparse": lambda torch: [dense(torch, 2, 3).to_sparse(), torch.zeros(2, 3).to_sparse(), torch.zeros(0, 3).to_sparse()],
    "to_sparse of dims": lambda torch: [dense(torch, 2, 3).to_sparse(1), torch.tensor(3.0).to_sparse()],
    "to_sparse_csr": lambda torch: [dense(torch, 2, 3).to_sparse_csr(), dense(torch, 2, 3).to_sparse(layout=torch.sparse_csr)],
    "between layouts": lambda torch: [coo(torch).to_sparse_csr(), csr(torch).to_sparse(), csr(torch).to_sparse_coo()],
    "to_dense": lambda torch: [coo(torch).to_dense(), torch.sparse_coo_tensor(TWICE, [1.0, 2.0, 3.0]).to_dense()],
    "to_dense of itself": lambda torch: (lambda x: x.to_dense() is x)(torch.ones(2)),
    "sparse_mask": lambda torch: dense(torch, 2, 3).sparse_mask(coo(torch).coalesce()),
    "parts": lambda torch: [coo(torch).coalesce().indices(), coo(torch).coalesce().values(), coo(torch)._nnz(), csr(torch)._nnz()],
    "about": lambda torch: [
        [str(x.layout), x.is_sparse, x.is_sparse_csr, str(x.dtype), list(x.shape), x.ndim, x.dim(), x.size(0), x.numel(), str(x.device),
         isinstance(x, torch.Tensor), torch.is_tensor(x), x.is_floating_point()]
        for x in (coo(torch), csr(torch))
    ],
    "layouts": lambda torch: [str(torch.ones(2).layout), torch.strided is torch.ones(2).layout, torch.ones(2).sparse_dim()],
    "clone, detach, casts": lambda torch: [coo(torch).clone(), coo(torch).detach(), coo(torch).double(), coo(torch).to(torch.int64)],
    "zeros_like": lambda torch: [torch.zeros_like(coo(torch)), torch.zeros_like(csr(torch))],
}  # fmt: skip
COMPUTING: dict[str, Callable[..., Any]] = {
    "times dense": lambda torch: [coo(torch) @ dense(torch, 3, 2), csr(torch) @ dense(torch, 3, 2), dense(torch, 2, 2) @ coo(torch)],
    "times vector": lambda torch: [coo(torch) @ torch.ones(3), csr(torch) @ torch.ones(3), torch.mv(coo(torch), torch.ones(3))],
    "mm": lambda torch: [torch.sparse.mm(coo(torch), dense(torch, 3, 2)), torch.mm(coo(torch), dense(torch, 3, 2))],
    "matmul": lambda torch: [torch.matmul(coo(torch), dense(torch, 3, 2)), dense(torch, 2, 3).matmul(coo(torch).t())],
    "times sparse": lambda torch: [coo(torch) @ coo(torch).t(), torch.sparse.mm(coo(torch), coo(torch).t())],
    "mm of dense": lambda torch: torch.sparse.mm(torch.ones(2, 2), torch.ones(2, 2)),
    "mm of dtypes": lambda torch: [coo(torch).long() @ dense(torch, 3, 2).long(), coo(torch).half() @ dense(torch, 3, 2).half()],
    "sampled_addmm": lambda torch: torch.sparse.sampled_addmm(csr(torch), dense(torch, 2, 4), dense(torch, 4, 3), beta=2.0, alpha=0.5),
    "spdiags": lambda torch: [
        torch.sparse.spdiags(dense(torch, 3, 3), torch.tensor([0, -1, 2]), (3, 3)),
        torch.sparse.spdiags(dense(torch, 2, 4), torch.tensor([1, -2]), (3, 5)),
        torch.sparse.spdiags(torch.arange(4.0), torch.tensor(1), (5, 5), layout=torch.sparse_csr),
    ],
    "addmm": lambda torch: [
        torch.sparse.addmm(torch.ones(2, 2), coo(torch), dense(torch, 3, 2), beta=2, alpha=3),
        torch.addmm(torch.ones(2, 2), coo(torch), dense(torch, 3, 2)),
    ],
    "scalars": lambda torch: [coo(torch) * 2, 2 * coo(torch), coo(torch) / 2, coo(torch) // 2, csr(torch) * 2, coo(torch).int() * 2.5],
    "sums": lambda torch: [coo(torch) + coo(torch), coo(torch) - coo(torch), csr(torch) + csr(torch), torch.add(coo(torch), coo(torch), alpha=2)],
    "sum of others": lambda torch: coo(torch).coalesce() + torch.sparse_coo_tensor([[1], [1]], [7.0], (2, 3)),
    "dense plus sparse": lambda torch: [dense(torch, 2, 3) + coo(torch), torch.add(dense(torch, 2, 3), coo(torch), alpha=2), dense(torch, 2, 3).add_(coo(torch))],
    "products": lambda torch: [coo(torch) * coo(torch), coo(torch) * dense(torch, 2, 3), dense(torch, 2, 3) * coo(torch)],
    "products of others": lambda torch: [
        x * torch.sparse_coo_tensor([[0], [2]], [7.0], (2, 3)) for x in (coo(torch), coo(torch).coalesce())
    ],
    "elementwise": lambda torch: [getattr(coo(torch), n)() for n in ("neg", "abs", "sin", "tanh", "sqrt", "relu", "sign", "floor", "log1p", "isnan")],
    "elementwise of torch": lambda torch: [torch.neg(coo(torch)), torch.sqrt(csr(torch)), -coo(torch), coo(torch) ** 2, coo(torch).pow(2)],
    "sum": lambda torch: [coo(torch).sum(), torch.sum(coo(torch)), csr(torch).sum(), torch.sparse.sum(coo(torch)), coo(torch).norm()],
    "sum of dims": lambda torch: [torch.sparse.sum(coo(torch), 0), torch.sparse.sum(coo(torch), (0, 1)), coo(torch).sum(0), coo(torch).sum(-1)],
    "sum of hybrid": lambda torch: [torch.sparse.sum(hybrid(torch), 0), torch.sparse.sum(hybrid(torch), 1)],
    "softmax": lambda torch: [torch.sparse.softmax(coo(torch), 1), torch.sparse.log_softmax(coo(torch), 0), torch.sparse.softmax(hybrid(torch), 1)],
    "transposes": lambda torch: [coo(torch).t(), coo(torch).transpose(0, 1), coo(torch).T, coo(torch).permute(1, 0), torch.transpose(coo(torch), 0, 1)],
    "unsqueeze": lambda torch: [coo(torch).unsqueeze(0), coo(torch).unsqueeze(-1)],
    "select": lambda torch: [coo(torch)[0], coo(torch)[0, 2], coo(torch)[:, 1], coo(torch)[..., 0], coo(torch)[-1], coo(torch).select(1, 2)],
    "select of hybrid": lambda torch: [hybrid(torch)[0], hybrid(torch)[:, 1]],
    "index_select": lambda torch: [coo(torch).index_select(0, torch.tensor([1, 0, 1])), coo(torch).index_select(1, torch.tensor([2]))],
    "iterate": lambda torch: list(coo(torch)),
    "cat": lambda torch: [torch.cat([coo(torch), coo(torch)]), torch.cat([coo(torch), coo(torch)], 1), torch.cat([hybrid(torch), hybrid(torch)], 1)],
    "in place": lambda torch: [coo(torch).mul_(2), coo(torch).add_(coo(torch)), coo(torch).zero_(), coo(torch).div_(2), coo(torch).neg_()],
    "item": lambda torch: torch.sparse_coo_tensor([[0]], [2.0], (1,)).item(),
}  # fmt: skip
TEXTS: dict[str, Callable[..., Any]] = {
    "coo": lambda torch: [coo(torch), coo(torch).double(), coo(torch).int(), coo(torch, requires_grad=True), hybrid(torch)],
    "csr": lambda torch: [csr(torch), csr(torch).double(), csr(torch, requires_grad=True)],
    "empty": lambda torch: torch.sparse_coo_tensor(size=(2, 3)),
    "large": lambda torch: torch.eye(2000).to_sparse(),
    "history": lambda torch: torch.sparse_coo_tensor(PLACES, torch.ones(3, requires_grad=True), (2, 3)),
    "types": lambda torch: [coo(torch).type(), coo(torch).double().type(), torch.sparse_coo],
}
ERRORS: dict[str, Callable[..., Any]] = {
    "indices": lambda torch: coo(torch).indices(),
    "values": lambda torch: coo(torch).values(),
    "indices of strided": lambda torch: torch.ones(2).indices(),
    "indices of csr": lambda torch: csr(torch).indices(),
    "crow_indices of coo": lambda torch: coo(torch).crow_indices(),
    "coalesce of strided": lambda torch: torch.ones(2).coalesce(),
    "nnz": lambda torch: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0, 3.0]),
    "vector of indices": lambda torch: torch.sparse_coo_tensor([0, 1], [1.0, 2.0]),
    "sizes": lambda torch: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 4)),
    "plus number": lambda torch: coo(torch) + 1,
    "plus dense": lambda torch: coo(torch) + torch.ones(2, 3),
    "plus another size": lambda torch: coo(torch) + torch.sparse_coo_tensor(size=(3, 3)),
    "mm of another size": lambda torch: coo(torch) @ torch.ones(2, 2),
    "mv of another size": lambda torch: coo(torch) @ torch.ones(2),
    "mm of another dtype": lambda torch: coo(torch) @ torch.ones(3, 2, dtype=torch.float64),
    "divided by dense": lambda torch: coo(torch) / torch.ones(2, 3),
    "exp": lambda torch: coo(torch).exp(),
    "view": lambda torch: coo(torch).view(6),
    "eq": lambda torch: coo(torch) == 1,
    "numpy": lambda torch: coo(torch).numpy(),
    "item": lambda torch: coo(torch).item(),
    "bool": lambda torch: bool(coo(torch)),
    "select": lambda torch: coo(torch)[5],
    "sum of no dim": lambda torch: coo(torch).sum(5),
    "sum of strided": lambda torch: torch.sparse.sum(torch.ones(2)),
    "to_sparse of dims": lambda torch: torch.ones(2, 3).to_sparse(3),
    "to_sparse of others": lambda torch: coo(torch).to_sparse(1),
    "sampled_addmm of strided": lambda torch: torch.sparse.sampled_addmm(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2)),
    "spdiags twice": lambda torch: torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([1, 1]), (3, 3)),
    "spdiags of another count": lambda torch: torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([1]), (3, 3)),
    "scaled by frequency": lambda torch: _gradients(torch, lambda t, w, i: _rows(t, w, i, scale_grad_by_freq=True)),
    "norm of a gradient": lambda torch: torch.nn.utils.get_total_norm([coo(torch)]),
    "stepped by AdamW": lambda torch: _trained(torch, "AdamW"),
    "maxima of bags": lambda torch: torch.nn.EmbeddingBag(4, 3, mode="max", sparse=True)(torch.tensor([[1]])),
    "leaf in place": lambda torch: coo(torch, requires_grad=True).mul_(2),
}


def twice(torch: Any, v: Any) -> Any:
    return torch.sparse_coo_tensor(TWICE, v, (2, 2))


GRADIENTS: dict[str, Callable[..., Any]] = {  # of torch, three values, and a matrix (2, 3)
    "mm": lambda torch, v, d: torch.sparse.mm(twice(torch, v), d),
    "matmul": lambda torch, v, d: twice(torch, v) @ d,
    "transposed": lambda torch, v, d: twice(torch, v).t() @ d,
    "mv": lambda torch, v, d: twice(torch, v) @ d[:, 0],
    "to_dense": lambda torch, v, d: twice(torch, v).to_dense(),
    "scalar": lambda torch, v, d: (twice(torch, v) * 3 / 2).to_dense(),
    "sum of two": lambda torch, v, d: (twice(torch, v) + twice(torch, v)).to_dense(),
    "plus dense": lambda torch, v, d: d[:, :2] + twice(torch, v),
    "values": lambda torch, v, d: twice(torch, v).coalesce().values(),
    "sum": lambda torch, v, d: torch.sparse.sum(twice(torch, v)),
    "sum of dim": lambda torch, v, d: torch.sparse.sum(twice(torch, v), 0).to_dense(),
    "neg": lambda torch, v, d: (-twice(torch, v)).to_dense(),
    "sparse times sparse": lambda torch, v, d: torch.sparse.mm(twice(torch, v), twice(torch, v)).to_dense(),
    "addmm": lambda torch, v, d: torch.sparse.addmm(d, twice(torch, v), d, beta=2, alpha=3),
    "csr": lambda torch, v, d: torch.sparse_csr_tensor([0, 1, 3], [1, 0, 1], v, (2, 2)) @ d,
    "sampled_addmm": lambda torch, v, d: torch.sparse.sampled_addmm(
        torch.sparse_csr_tensor([0, 1, 3], [1, 0, 1], v, (2, 2)), d, d.t(), alpha=2.0
    ).to_dense(),
}
NO_SECOND = {  # PyTorch's second gradients are zero, or missing; tests/torch/test_sparse.py checks these by differences
    "csr", "sampled_addmm", "sparse times sparse", "addmm", "plus dense", "values", "mm", "matmul", "transposed", "mv",
}  # fmt: skip


def leaf_gradient(torch: Any, d: Any) -> Any:
    x = torch.sparse_coo_tensor(TWICE, [1.0, 2.0, 3.0], (2, 2), dtype=torch.float64, requires_grad=True)
    torch.sparse.mm(x, d).pow(2).sum().backward()
    return x.grad.to_dense(), x.grad._nnz(), x.is_leaf


def made_sparse(torch: Any, d: Any) -> Any:
    return (d.to_sparse() * 2).to_dense() + d.to_sparse_csr().to_dense()


def _gradients(torch: Any, *losses: Callable[..., Any]) -> Any:
    """The gradient by a table after each of some losses: of torch, the table and numbers of rows."""
    weight, numbers, found = dense(torch, 4, 3).requires_grad_(), torch.tensor([[1, 2], [1, 0]]), []
    for loss in losses:
        loss(torch, weight, numbers).backward()
        found.append(weight.grad.clone())
    return found


def _rows(torch: Any, w: Any, i: Any, **options: Any) -> Any:
    return (torch.nn.functional.embedding(i, w, sparse=True, **options) * dense(torch, 1, 3).cos()).sum()


def _bags(torch: Any, w: Any, i: Any, **options: Any) -> Any:
    return (torch.nn.functional.embedding_bag(i, w, sparse=True, **options) * dense(torch, 1, 3).cos()).sum()


def _hooked(torch: Any, w: Any, i: Any) -> Any:
    w.register_hook(lambda g: g * 2)
    return _rows(torch, w, i)


TABLES: dict[str, Callable[..., Any]] = {
    "rows": lambda torch: _gradients(torch, _rows),
    "of int32": lambda torch: _gradients(torch, lambda t, w, i: _rows(t, w, i.int())),
    "without the padding": lambda torch: _gradients(torch, lambda t, w, i: _rows(t, w, i, padding_idx=1)),
    "of nothing": lambda torch: _gradients(torch, lambda t, w, i: _rows(t, w, i[:0])),
    "twice": lambda torch: _gradients(torch, _rows, lambda t, w, i: _rows(t, w, i[0]))[1].coalesce(),
    "then dense": lambda torch: _gradients(torch, _rows, lambda t, w, i: (w * w).sum(), _rows),
    "beside dense": lambda torch: _gradients(torch, lambda t, w, i: _rows(t, w, i) + (w * w).sum()),
    "of two uses": lambda torch: _gradients(torch, lambda t, w, i: _rows(t, w, i) + _rows(t, w, i[1]))[0].coalesce(),
    "through operations": lambda torch: _gradients(torch, lambda t, w, i: _rows(t, -(w * 2 + 1), i)),
    "through a product": lambda torch: _gradients(torch, lambda t, w, i: _rows(t, w * w.detach().sin(), i)),
    "hooks": lambda torch: _gradients(torch, _hooked),
    "bags": lambda torch: _gradients(torch, _bags),
    "sums of bags": lambda torch: _gradients(torch, lambda t, w, i: _bags(t, w, i, mode="sum", padding_idx=2)),
    "bags by offsets": lambda torch: _gradients(
        torch, lambda t, w, i: _bags(t, w, i.reshape(-1), mode="mean", offsets=i[1].flip(0), padding_idx=-2)
    ),
    "weighted bags": lambda torch: _gradients(torch, lambda t, w, i: _bags(t, w, i, mode="sum", per_sample_weights=dense(t, 2, 2))),
    "zeroed": lambda torch: _zeroed(torch),
    "stepped by SGD": lambda torch: [_trained(torch, "SGD"), _trained(torch, "SGD", momentum=0.5, dampening=0.3, nesterov=False)],
    "stepped by Adagrad": lambda torch: _trained(torch, "Adagrad", lr_decay=0.1, initial_accumulator_value=0.5),
    "stepped by SparseAdam": lambda torch: _trained(torch, "SparseAdam", betas=(0.7, 0.8)),
    "by autograd.grad": lambda torch: _by_grad(torch),
}  # fmt: skip


def _zeroed(torch: Any) -> Any:
    module = torch.nn.Embedding(4, 3, sparse=True)
    module(torch.tensor([1, 1])).sum().backward()
    module.zero_grad(set_to_none=False)
    return module.weight.grad


def _trained(torch: Any, name: str, **options: Any) -> Any:
    module, numbers = torch.nn.EmbeddingBag(4, 3, sparse=True, _weight=dense(torch, 4, 3).cos()), torch.tensor([[1, 2, 1], [1, 0, 0]])
    optimizer = getattr(torch.optim, name)(module.parameters(), lr=0.1, **options)
    for _ in range(3):
        optimizer.zero_grad()
        module(numbers).square().sum().backward()
        optimizer.step()
    return module.weight.detach()


def _by_grad(torch: Any) -> Any:
    weight, numbers = dense(torch, 4, 3).requires_grad_(), torch.tensor([1, 2, 1])
    rows = torch.nn.functional.embedding(numbers, weight, sparse=True)
    (first,) = torch.autograd.grad((rows * rows).sum(), weight, create_graph=True)
    (second,) = torch.autograd.grad(torch.sparse.sum(first), weight)
    return [first.detach(), first.grad_fn.name(), second]


def raises(name: str, compute: Callable[..., Any]) -> Case:
    made = program(name, compute)
    made.raises = True
    return made


def _parts_of(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda torch: parts(run(torch))


def _text_of(run: Callable[..., Any]) -> Callable[..., Any]:
    def compute(torch: Any) -> Any:
        found = run(torch)
        return [str(x) for x in found] if isinstance(found, list) else str(found)

    return compute


_ONCE: dict[str, Any] = {"_dtypes": ""}
CASES: list[Case] = [
    *(program(f"sparse {name}", _parts_of(run), _strides=False) for rows in (MAKING, COMPUTING, TABLES) for name, run in rows.items()),
    *(program(f"text of sparse {name}", _text_of(run)) for name, run in TEXTS.items()),
    *(raises(f"sparse {name}", run) for name, run in ERRORS.items()),
    *(
        program(f"gradients of sparse {name}", run, T(3), T(2, 3), _second=name not in NO_SECOND, _strides=False, **_ONCE)
        for name, run in GRADIENTS.items()
    ),
    program("gradient of a sparse leaf", leaf_gradient, T(2, 3, grad=False), _strides=False, **_ONCE),
    program("gradients of to_sparse", made_sparse, T(2, 3), _second=False, _strides=False, **_ONCE),
]
