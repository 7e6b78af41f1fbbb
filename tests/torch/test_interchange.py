"""Parameters, and what tensors do in other hands, where PyTorch itself does otherwise or has no test in the table."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.torch.core.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter, is_lazy


def test_one_pickle_keeps_what_is_shared() -> None:
    x = torch.zeros(4)
    y, part, same = pickle.loads(pickle.dumps([x, x[1:3], x]))
    y.fill_(3)
    assert part.tolist() == [3, 3] and same is y and part.untyped_storage() is y.untyped_storage()
    assert pickle.loads(pickle.dumps(x.untyped_storage())).tolist() == [0] * 16


def test_typed_storages_warn_once() -> None:
    torch.storage._warned.clear()
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        torch.ones(2).storage()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.ones(2).storage()


def test_dlpack_refuses_what_requires_gradients() -> None:
    with pytest.raises(BufferError, match=r"Can't export tensors that require gradient, use tensor\.detach"):
        torch.ones(2, requires_grad=True).__dlpack__()


class Own(torch.Tensor):
    def double_sum(self) -> float:
        return 2 * self.sum().item()


def test_subclasses_of_tensor() -> None:
    x = Own([1, 2])
    assert type(x) is Own and x.double_sum() == 6 and repr(x) == "Own([1., 2.])"
    assert isinstance(torch.ones(2).as_subclass(Own), Own)
    assert type(copy.deepcopy(x)) is Own and type(pickle.loads(pickle.dumps(x))) is Own
    assert torch.Tensor._make_subclass(Own, torch.ones(2), True).requires_grad


def test_parameters_are_leaves_that_share_memory() -> None:
    data = torch.ones(2)
    p = Parameter(data)
    assert isinstance(p, Parameter) and not isinstance(data, Parameter) and p.is_leaf and p.requires_grad
    assert p.data_ptr() == data.data_ptr() and type(p.data) is torch.Tensor and type(p * 2) is torch.Tensor
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    (p * 3).sum().backward()
    assert p.grad.tolist() == [3, 3]
    assert not Parameter(data, requires_grad=False).requires_grad and Parameter().shape == (0,)
    with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype can require gradients"):
        Parameter(torch.ones(2, dtype=torch.int64))


def test_parameters_in_pickles_and_copies() -> None:
    p = Parameter(torch.ones(2))
    for again in (copy.deepcopy(p), copy.copy(p), pickle.loads(pickle.dumps(p))):
        assert type(again) is Parameter and again.requires_grad and again.tolist() == [1, 1]
    first, second = copy.deepcopy([p, p])
    assert first is second and first is not p


def test_buffers_are_tensors_that_are_marked() -> None:
    b = Buffer(torch.ones(2), persistent=False)
    assert type(b) is torch.Tensor and isinstance(b, Buffer) and not b.persistent
    assert not isinstance(torch.ones(2), Buffer) and not isinstance(Parameter(), Buffer)


def test_parameters_without_a_shape() -> None:
    u = UninitializedParameter(dtype=torch.float64)
    assert is_lazy(u) and isinstance(u, Parameter) and u.dtype is torch.float64 and repr(u) == "<UninitializedParameter>"
    assert is_lazy(copy.deepcopy(u)) and is_lazy(pickle.loads(pickle.dumps(u)))
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter or buffer"):
        u.shape  # noqa: B018
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        u + 1
    with pytest.raises(RuntimeError, match="Can't share memory on an uninitialized parameter or buffer"):
        u.share_memory_()
    u.data = u.data.float()
    u.materialize((2, 3))
    assert type(u) is Parameter and u.shape == (2, 3) and u.dtype is torch.float32 and u.requires_grad
    b = UninitializedBuffer()
    b.materialize((2,))
    assert type(b) is torch.Tensor and isinstance(b, Buffer) and not b.requires_grad


def test_shared_memory_is_seen_by_other_processes() -> None:
    multiprocessing = pytest.importorskip("multiprocessing")
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("needs fork")
    x = torch.zeros(3).share_memory_()
    context = multiprocessing.get_context("fork")
    process = context.Process(target=lambda: x.add_(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        process.start()
    process.join(60)
    assert process.exitcode == 0 and x.tolist() == [2, 2, 2]


def test_files_as_tensors(tmp_path: object) -> None:
    name = f"{tmp_path}/numbers"
    x = torch.from_file(name, shared=True, size=3, dtype=torch.int32)
    x.fill_(7)
    x.numpy().base.flush() if hasattr(x.numpy().base, "flush") else None
    assert np.fromfile(name, np.int32).tolist() == [7, 7, 7]
    private = torch.from_file(name, shared=False, size=2, dtype=torch.int32)
    private.zero_()
    assert np.fromfile(name, np.int32).tolist() == [7, 7, 7] and private.tolist() == [0, 0]


VIEWS = {
    "diagonal": lambda x: torch.diagonal(x.view(3, 3) * 1),
    "diagonal of an argument": lambda x: x.view(3, 3).diagonal(1),
    "expand": lambda x: (x * 2).view(-1, 1).expand(-1, 3),
    "expand an argument": lambda x: x.view(-1, 1).expand(-1, 3),
    "meshgrid": lambda x: torch.meshgrid(x, x + 1, indexing="ij")[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_arrays_of_compiled_views_can_be_written_to(name: str) -> None:
    plain = VIEWS[name]
    compiled = dg.compile(lambda x: (plain(x), x + 1), backend="reference")
    for _ in range(2):
        given = [torch.arange(9.0), torch.arange(9.0)]
        views = [plain(given[0]), compiled(given[1])[0]]
        for view in views:
            view.numpy()[:2] = 5.0
        assert views[0].tolist() == views[1].tolist() and given[0].tolist() == given[1].tolist()


def test_read_only_memory_stays_read_only() -> None:
    array = np.frombuffer(bytes(16))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not torch.from_numpy(array).numpy().flags.writeable
