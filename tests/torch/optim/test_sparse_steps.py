"""Steps with sparse gradients in compiled functions: one program of static sizes, with the bits of the plain steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.backends.c.backend import lower_graph
from dynagraph.ir.passes.pipeline import run as run_passes
from tests.torch.optim.cases import Case, name_of
from tests.torch.optim.sparse_cases import SPARSE, numbers_of, train

DTYPES = ("float64", "float32", "bfloat16")


def states(optimizer: Any) -> list[list[Any]]:
    """All states, sparse ones as their parts."""
    found = []
    for state in optimizer.state_dict()["state"].values():
        for name, value in sorted(state.items()):
            parts = [value]
            if isinstance(value, torch.Tensor):
                parts = [value._indices(), value._values()] if value.is_sparse else [value]
                parts = [str(value.dtype), *(p.double().tolist() for p in parts)]
            found.append([name, *parts])
    return found


def check(case: Case, backend: str = "numpy", **about: Any) -> Any:
    """A compiled training is a plain one, bit for bit; gives the compiled step."""
    compiled: list[Any] = []

    def wrap(step: Callable[..., Any]) -> Any:
        compiled.append(dg.compile(step, mode="max", fullgraph=True, backend=backend))
        return compiled[-1]

    with dg.config.override(stay_eager=False):
        got, optimizer = train(torch, case, wrap=wrap, **about)
    expected, plain = train(torch, case, **about)
    for a, b in zip(got, expected, strict=True):
        assert a.tobytes() == b.tobytes()
    assert states(optimizer) == states(plain)
    assert compiled[0].stats.breaks == {} and not compiled[0].stats.fallbacks
    return compiled[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_a_training_step_is_one_program(case: Case, dtype: str) -> None:
    """Momentum's buffer begins as a gradient, and has other sizes from then on."""
    compiled = check(case, steps=8, dtype=dtype)
    assert compiled.counters()["misses"] <= (3 if "momentum" in case[1] else 1) and compiled.counters()["refusals"] == 0


@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_machine_code(case: Case) -> None:
    compiled = check(case, "c", steps=6, dtype="float32")
    assert compiled.counters()["misses"] <= 3 and compiled.counters()["refusals"] == 0


@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_batches_of_other_sizes(case: Case) -> None:
    """None, one and many rows: sizes of at least two have one program."""
    sizes = [5, 8, 3, 2, 9, 4, 0, 1, 6, 0, 1, 7, 31]
    compiled = check(case, steps=len(sizes), size_of=sizes.__getitem__)
    assert compiled.counters()["misses"] <= 7


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_rows_of_padding_have_no_gradient(case: Case, dtype: str) -> None:
    """How many rows are left is data: none, one, some and all."""
    batches = [[1, 2, 2, 3], [0, 2, 2, 0], [1, 1, 1, 3], [2, 2, 2, 2], [1, 5, 3, 5], [2, 2, 7, 2], [9, 8, 9, 8]]
    compiled = check(case, steps=len(batches), dtype=dtype, padding=2, of_step=lambda k: np.array(batches[k]))
    assert compiled.counters()["misses"] <= 5 and compiled.counters()["refusals"] == 0


@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_machine_code_with_padding(case: Case) -> None:
    check(case, "c", steps=6, dtype="float32", padding=0)


@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_wide_rows(case: Case) -> None:
    """Whose sums are taken row after row in plain steps."""
    check(case, steps=4, width=160, dtype="float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_learning_rates_change(case: Case, dtype: str) -> None:
    def change(k: int, optimizer: Any) -> None:
        optimizer.param_groups[0]["lr"] *= 0.9

    compiled = check(case, steps=8, dtype=dtype, change=change)
    assert compiled.counters()["misses"] <= 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_learning_rates_that_are_tensors(case: Case, dtype: str) -> None:
    check(case, steps=5, dtype=dtype, lr=torch.tensor(0.01, dtype=torch.float64))


@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_states_are_loaded(case: Case) -> None:
    def change(k: int, optimizer: Any) -> None:
        if k == 4:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        if k == 6 and case[0] != "Adagrad":  # whose states are there from the beginning
            optimizer.state.pop(optimizer.param_groups[0]["params"][0], None)

    check(case, steps=9, change=change)


@pytest.mark.parametrize("case", SPARSE, ids=name_of)
def test_gradients_that_are_there(case: Case) -> None:
    """Of coordinates in one and in two dimensions, known to differ or not."""
    rng = np.random.default_rng(0)
    given = [
        torch.sparse_coo_tensor([[3, 1, 3, 3]], rng.normal(size=(4, 4)), (5, 4)),
        torch.sparse_coo_tensor([[3, 1, 3, 3], [0, 2, 0, 3]], rng.normal(size=4), (5, 4)),
        torch.sparse_coo_tensor([[3, 1, 3, 3]], rng.normal(size=(4, 4)), (5, 4)).coalesce(),
    ]
    for grad in given:
        found = []
        for compiles in (True, False):
            param = torch.ones(5, 4, dtype=torch.float64, requires_grad=True)
            param.grad = grad.clone()
            optimizer = getattr(torch.optim, case[0])([param], **case[1])
            step = dg.compile(lambda o=optimizer: o.step(), mode="max", backend="numpy", fullgraph=True)
            with dg.config.override(stay_eager=False):
                for _ in range(4):
                    step() if compiles else optimizer.step()
            found.append([param.tolist(), states(optimizer)])
        assert found[0] == found[1]


@pytest.mark.parametrize("batch", [[1, 2, 2, 3], [2, 2, 2], [2, 4], [2], [1, 1]])
def test_gradients_with_padding_are_seen_outside(batch: list[int]) -> None:
    """The program keeps all rows; those of the padding are left out when somebody looks."""
    found = []
    for compiles in (True, False):
        torch.manual_seed(0)
        table = torch.nn.Embedding(6, 3, sparse=True, padding_idx=2)
        used = lambda i, t=table: (t(i) * 2 + t(i + 1)).square().sum().backward()  # noqa: E731
        (dg.compile(used, mode="max", backend="numpy", fullgraph=True) if compiles else used)(torch.tensor(batch))
        grad: Any = table.weight.grad
        other = copy.deepcopy(grad)
        once = (grad * 2).coalesce()
        found.append([
            grad.is_coalesced(), grad._nnz(), grad._indices().tolist(), grad._values().tolist(), repr(grad), repr(other),
            once.indices().tolist(), once.values().tolist(), grad.to_dense().tolist(), other.is_coalesced(),
        ])  # fmt: skip
    assert found[0] == found[1]


def test_coalesced_tensors_leave_programs() -> None:
    def twice(x: Any) -> Any:
        return (x * 2).coalesce()

    compiled = dg.compile(twice, mode="max", backend="numpy", fullgraph=True)
    for places in ([[3, 1, 3, 0]], [[1, 1, 1, 1]], [[0, 1, 2, 3]], [[3, 1, 3, 0], [0, 1, 0, 2]]):
        x = torch.sparse_coo_tensor(torch.tensor(places), torch.tensor([1.5, 2.5, -3.0, 0.0]), (5, 3)[: len(places)])
        assert repr(compiled(x)) == repr(twice(x)) and compiled(x).is_coalesced()
    assert compiled.stats.fallbacks == 0


def test_momentum_keeps_what_counts_alone() -> None:
    """States do not grow by the rows of padding, nor by the places that were added up."""
    table = torch.nn.Embedding(8, 3, sparse=True, padding_idx=2)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9)

    def step(i: Any) -> None:
        optimizer.zero_grad()
        table(i).square().sum().backward()
        table.weight.grad = table.weight.grad.coalesce()
        optimizer.step()

    compiled = dg.compile(step, mode="max", backend="numpy", fullgraph=True)
    for k in range(6):
        compiled(torch.tensor([2, k, 2, 2, k % 2]))
    buffer = optimizer.state[table.weight]["momentum_buffer"]
    assert buffer._all.shape[0] == buffer._nnz() == 5


def test_counts_of_steps_are_kept_by_python() -> None:
    """Two steps in one call, and a step outside in between; the count is a Python number, as PyTorch's."""
    found = []
    for compiles in (True, False):
        param = torch.ones(5, 3, requires_grad=True)
        optimizer = torch.optim.SparseAdam([param], lr=0.1)

        def twice(o: Any = optimizer) -> None:
            o.step()
            o.step()

        run = dg.compile(twice, mode="max", backend="numpy", fullgraph=True) if compiles else twice
        for k in range(4):
            param.grad = torch.sparse_coo_tensor([[3, 1, k]], torch.arange(9.0).reshape(3, 3), (5, 3))
            run()
            if k == 2:
                optimizer.step()
        step = optimizer.state[param]["step"]
        assert type(step) is int and step == 9
        found.append(param.tolist())
    assert found[0] == found[1]


LAYERS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "bags": (lambda: torch.nn.EmbeddingBag(6, 3, sparse=True, mode="sum"), lambda m, i: m(i, torch.tensor([0, 3, 5]))),
    "means of bags": (lambda: torch.nn.EmbeddingBag(6, 3, sparse=True), lambda m, i: m(i.reshape(2, 4))),
    "norms": (lambda: torch.nn.Embedding(6, 3, sparse=True, max_norm=1.0), lambda m, i: m(i)),
    "used twice": (lambda: torch.nn.Embedding(6, 3, sparse=True), lambda m, i: m(i) * 2 + m(i // 2)),
}


@pytest.mark.parametrize("optimizer", ["SGD", "SparseAdam", "Adagrad"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, optimizer: str) -> None:
    make, call = LAYERS[name]
    found = []
    for compiles in (True, False):
        torch.manual_seed(0)
        layer = make()
        own = getattr(torch.optim, optimizer)(layer.parameters(), lr=0.1)

        def step(i: Any, layer: Any = layer, own: Any = own) -> Any:
            own.zero_grad()
            loss = call(layer, i).square().sum()
            loss.backward()
            own.step()
            return loss.detach()

        run = dg.compile(step, mode="max", backend="numpy", fullgraph=True) if compiles else step
        with dg.config.override(stay_eager=False):
            losses = [run(torch.tensor(numbers_of(k, 8) % 6)).item() for k in range(5)]
        found.append([losses, layer.weight.tolist()])
    assert found[0] == found[1]


@pytest.mark.parametrize("case", [case for case in SPARSE if case[0] != "SparseAdam"], ids=name_of)
def test_dense_gradients_beside_them(case: Case) -> None:
    """Of parameters of one group, in another order and at other times."""
    found = []
    for compiles in (True, False):
        rng = np.random.default_rng(0)
        params = [torch.tensor(rng.normal(size=(4, 3)), requires_grad=True) for _ in range(4)]
        optimizer = getattr(torch.optim, case[0])(params, **case[1])
        step = dg.compile(lambda o=optimizer: o.step(), mode="max", backend="numpy", fullgraph=True) if compiles else optimizer.step
        with dg.config.override(stay_eager=False):
            for k in range(6):
                for j, param in enumerate(params):
                    sparse = torch.sparse_coo_tensor([[3, 1, 3, k % 4]], rng.normal(size=(4, 3)), (4, 3))
                    dense = torch.tensor(rng.normal(size=(4, 3)))
                    param.grad = None if j == 3 and k < 2 else sparse if j % 2 else dense
                step()
        found.append([*(p.tolist() for p in params), states(optimizer)])
    assert found[0] == found[1]


@pytest.mark.parametrize("case", [case for case in SPARSE if "momentum" in case[1]], ids=name_of)
def test_momentum_where_all_places_are_those_of_before(case: Case) -> None:
    """Values are added up where they stand: which is left to Python, as it is for the places to say."""
    check(case, steps=5, of_step=lambda k: np.array([3, 1, 3]))


@pytest.mark.parametrize("name", ["SGD", "SparseAdam", "Adagrad"])
def test_tables_are_not_copied(name: str) -> None:
    """The program works on the rows that were used alone."""
    table = torch.nn.Embedding(100_000, 2, sparse=True)
    optimizer = getattr(torch.optim, name)(table.parameters(), lr=0.1)

    def step(numbers: Any) -> None:
        optimizer.zero_grad()
        table(numbers).square().sum().backward()
        optimizer.step()

    compiled = dg.compile(step, mode="max", fullgraph=True)
    for k in range(3):
        compiled(torch.tensor([k, 3, k, 99_999]))
    workspace = lower_graph(run_passes(compiled.last_graph)).workspace.constant
    assert workspace is not None and workspace < 100_000


def test_signs_of_zeros_stay() -> None:
    """Where a row is given twice, there is a place that changes nothing: not even the sign of a zero."""
    param = torch.tensor([[-0.0, 1.0], [-0.0, 2.0], [0.0, 3.0]], requires_grad=True)
    optimizer = torch.optim.SparseAdam([param], lr=0.5)
    param.grad = torch.sparse_coo_tensor([[1, 1, 1]], [[0.0, 1.0], [0.0, 1.0], [-0.0, -3.0]], (3, 2))
    dg.compile(lambda: optimizer.step(), mode="max", backend="numpy", fullgraph=True)()
    assert np.signbit(param.detach().numpy()[:, 0]).tolist() == [True, True, False]
    assert np.allclose(param.detach().numpy()[:, 1], [1, 2.5, 3])


def test_what_is_no_number_stays_in_its_row() -> None:
    weights = []
    for compiles in (True, False):
        param = torch.ones(3, 2, requires_grad=True)
        optimizer = torch.optim.SparseAdam([param], lr=0.5)
        param.grad = torch.sparse_coo_tensor([[0, 2, 2]], [[torch.inf, 1.0], [torch.nan, 1.0], [2.0, 1.0]], (3, 2))
        step = dg.compile(lambda o=optimizer: o.step(), mode="max", backend="numpy", fullgraph=True)
        step() if compiles else optimizer.step()
        weights.append(param.detach().numpy().tobytes())
    assert weights[0] == weights[1]


def test_dense_gradients_are_refused() -> None:
    param = torch.ones(4, 2, requires_grad=True)
    param.grad = torch.ones(4, 2)
    optimizer = torch.optim.SparseAdam([param])
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
        dg.compile(lambda: optimizer.step(), mode="max", backend="numpy")()
    assert not optimizer.state
