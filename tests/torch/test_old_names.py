"""Names from before others, and private ones, that programs still take: constructors of sparse tensors, fills, hooks."""

from __future__ import annotations

import pickle
import warnings
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as own
from dynagraph.torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from dynagraph.torch.functions import sparse_types
from dynagraph.torch.nn import init
from dynagraph.torch.nn.modules.transformer import _get_activation_fn, _get_clones

theirs = pytest.importorskip("torch")

NAMES = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long")


def _both(call: Any) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(own), call(theirs)


def _places(t: Any) -> Any:
    return t.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize("name", NAMES)
def test_sparse_types_by_dtype(name: str) -> None:
    def call(t: Any) -> Any:
        kind = getattr(t.sparse, f"{name}Tensor")
        made, empty = kind(_places(t), t.tensor([1, 2]).to(kind.dtype)), kind(2, 3)
        mine = isinstance(made, kind), isinstance(made, getattr(t, f"{name}Tensor")), isinstance(t.ones(2, dtype=kind.dtype), kind)
        return str(made.dtype), tuple(made.shape), str(empty.dtype), tuple(empty.shape), *mine, kind.is_sparse, repr(kind)

    found, wanted = _both(call)
    assert found == wanted


def test_sparse_types_take_sizes_and_keep_gradients() -> None:
    def call(t: Any) -> Any:
        values = t.tensor([1.0, 2.0], requires_grad=True)
        made = t.sparse.FloatTensor(_places(t), values, t.Size([2, 3]))
        t.spmm(made, t.arange(6.0).view(3, 2)).sum().backward()
        return made.to_dense().detach().numpy(), values.grad.numpy(), t.sparse.DoubleTensor(t.Size([2, 2])).to_dense().numpy()

    for found, wanted in zip(*_both(call), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_sparse_types_refuse_other_arguments_and_warn_once() -> None:
    with pytest.raises(TypeError, match=r"got \(list, list\); torch.sparse.FloatTensor takes"):
        own.sparse.FloatTensor([[0, 1]], [1.0])
    with pytest.raises(RuntimeError, match="expected scalar type Long but found Int"):
        own.sparse.FloatTensor(_places(own).int(), own.ones(2))
    sparse_types._warned.clear()
    with pytest.warns(UserWarning, match=r"torch.sparse.SparseTensor\(shape, \*, device=\) is deprecated"):
        own.sparse.FloatTensor(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own.sparse.FloatTensor(2, 3)
    assert pickle.loads(pickle.dumps(own.sparse.FloatTensor)) is own.sparse.FloatTensor


def test_fills_without_gradients_by_their_private_names() -> None:
    w: Any = own.empty(3, 4, requires_grad=True)
    fills: Any = init
    assert fills._no_grad_fill_(w, 2.0).tolist() == [[2.0] * 4] * 3 and fills._no_grad_zero_(w).sum() == 0
    for fill in (fills._no_grad_uniform_, fills._no_grad_normal_):
        assert fill(w, -1.0, 1.0).abs().sum() > 0 and w.is_leaf and w.requires_grad
    assert fills._no_grad_trunc_normal_(w, 0.0, 1.0, -0.5, 0.5).abs().max() <= 0.5


def test_steps_of_wrappers_that_are_no_optimizers_call_hooks() -> None:
    class Wrapper(own.optim.Optimizer):
        def __init__(self, inner: Any):
            self._optimizer_step_pre_hooks: OrderedDict[int, Any] = OrderedDict()
            self._optimizer_step_post_hooks: OrderedDict[int, Any] = OrderedDict()
            self._patch_step_function()
            self.inner, self.param_groups = inner, inner.param_groups

        def step(self, closure: Any = None) -> Any:
            return self.inner.step(closure)

    w = own.ones(2, requires_grad=True)
    wrapper, called = Wrapper(own.optim.SGD([w], lr=0.5)), []
    wrapper.register_step_post_hook(lambda *given: called.append("after"))
    w.sum().backward()
    wrapper.step()
    assert called == ["after"] and w.tolist() == [0.5, 0.5]


def test_lbfgs_without_a_closure_says_so() -> None:
    w = own.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match=r"LBFGS.step\(\) missing 1 required positional argument: 'closure'"):
        own.optim.LBFGS([w]).step()  # type: ignore[call-arg]


def test_assertions_on_tensors() -> None:
    assert own._assert_async(own.tensor(1.5)) is None and own._shape_as_tensor(own.ones(2, 3)).tolist() == [2, 3]
    with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value, but got zero"):
        own._assert_async(own.tensor(0))
    with pytest.raises(RuntimeError, match="odd"):
        own._assert_async(own.tensor(False), "odd")
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        own._assert_async(own.ones(2))


def test_tensors_in_one_vector_and_back() -> None:
    tensors = [own.arange(6.0).view(2, 3), own.ones(2)]
    flat: Any = _flatten_dense_tensors(tensors)
    assert flat.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 1.0]
    assert all(own.equal(a, b) for a, b in zip(_unflatten_dense_tensors(flat, tensors), tensors, strict=True))


def test_parts_of_transformers_by_their_private_names() -> None:
    assert _get_activation_fn("relu") is own.nn.functional.relu and len(_get_clones(own.nn.Linear(2, 2), 3)) == 3
    assert own.cuda._initialized is False


def test_the_class_of_inverse_transforms_is_found_where_pytorch_has_it() -> None:
    transforms: Any = own.distributions.transforms
    assert type(transforms.ExpTransform().inv) is transforms._InverseTransform
