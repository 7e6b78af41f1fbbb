"""Recurrent layers in compiled functions: the same bits as outside, one program for all lengths, loops over cells of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph._core._dispatch import recurrent_backward, recurrent_before, recurrent_cell, recurrent_forward
from dynagraph.torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence


def gradients(module: Any, function: Any, *args: Any) -> list[Any]:
    """What a function gives, and the gradients by a module's parameters that it leaves."""
    module.zero_grad()
    found = function(*args)
    return [found.detach().clone(), *(p.grad.clone() for p in module.parameters())]


def assert_same(got: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape
        assert torch.equal(a, b)


LAYERS = [
    ("LSTM", {"bidirectional": True, "proj_size": 3}), ("GRU", {"num_layers": 2}), ("RNN", {"batch_first": True}),
    ("LSTM", {"num_layers": 2, "dropout": 0.5}),
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name, about", LAYERS)
def test_a_training_step_has_the_bits_of_eager_ones_at_all_lengths(name: str, about: dict[str, Any]) -> None:
    module = getattr(torch.nn, name)(4, 5, **about)

    def step(x: Any) -> Any:
        out, states = module(x)
        last = states[1] if name == "LSTM" else states
        end = out[:, -1] if module.batch_first else out[-1]
        loss = (end * end).sum() + last.sum()
        loss.backward()
        return loss

    compiled = dg.compile(step, mode="max")
    for steps in (6, 11, 7):
        x = torch.randn(*((2, steps) if module.batch_first else (steps, 2)), 4)
        torch.manual_seed(3)
        wanted = gradients(module, step, x)
        torch.manual_seed(3)
        assert_same(gradients(module, compiled, x), wanted)
    assert compiled.stats.compiles <= (3 if module.dropout else 2)  # what is drawn has a size of its own
    assert not compiled.stats.breaks


def test_a_packed_sequence_in_a_capture() -> None:
    module = torch.nn.GRU(4, 5, bidirectional=True)

    def step(data: Any, sizes: Any, h: Any) -> Any:
        out, states = module(PackedSequence(data, sizes), h)
        loss = (out.data * out.data).sum() + states.sum()
        loss.backward()
        return loss

    compiled = dg.compile(step, mode="max")
    for lengths in ([4, 2, 1], [5, 5, 3], [6, 1, 1]):
        packed = pack_sequence([torch.randn(n, 4) for n in lengths])
        args = packed.data, packed.batch_sizes, torch.randn(2, 3, 5)
        assert_same(gradients(module, compiled, *args), gradients(module, step, *args))


LENGTHS = [[4, 2, 2], [5, 5, 3], [3, 3, 3], [6, 2, 1], [5, 4, 4]]


@pytest.mark.parametrize("name, is_sorted", [("LSTM", True), ("GRU", False)])
def test_packing_in_a_capture_takes_lengths_as_data(name: str, is_sorted: bool) -> None:
    """One program for all lengths: how many rows and steps there are is read from the tensor of lengths."""
    module = getattr(torch.nn, name)(4, 5, num_layers=2, bidirectional=True, batch_first=True)

    def step(x: Any, lengths: Any) -> Any:
        out, states = module(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=is_sorted))
        padded, found = pad_packed_sequence(out, batch_first=True, padding_value=2.0)
        loss = (padded * padded).sum() + (states[1] if name == "LSTM" else states).sum() + found.sum()
        loss.backward()
        return loss

    compiled = dg.compile(step, mode="max", backend="numpy", fullgraph=True)
    for lengths in LENGTHS:
        args = torch.randn(3, 7, 4), torch.tensor(lengths if is_sorted else lengths[::-1])
        assert_same(gradients(module, compiled, *args), gradients(module, step, *args))
    assert compiled.counters()["misses"] == 1
    for wrong in ([8, 2, 1], [3, 2, 0]):
        with pytest.raises(RuntimeError, match=r"lengths|Length"):
            compiled(torch.randn(3, 7, 4), torch.tensor(wrong))


def test_packed_sequences_as_arguments() -> None:
    module = torch.nn.LSTM(4, 5)

    def step(sequences: Any) -> Any:
        out, (h, c) = module(sequences)
        loss = (out.data * out.data).sum() + (h * c).sum()
        loss.backward()
        return loss

    compiled = dg.compile(step, mode="max", backend="numpy", fullgraph=True)
    for lengths in LENGTHS:
        packed = pack_sequence([torch.randn(n, 4) for n in lengths[::-1]], enforce_sorted=False)
        assert_same(gradients(module, compiled, packed), gradients(module, step, packed))
    assert compiled.counters()["misses"] <= 2


def test_lengths_in_a_list_are_numbers_that_change() -> None:
    module = torch.nn.GRU(4, 5)

    def step(x: Any, lengths: Any) -> Any:
        out, _ = pad_packed_sequence(module(pack_padded_sequence(x, lengths))[0])
        loss = (out * out).sum()
        loss.backward()
        return loss

    compiled = dg.compile(step, mode="max", backend="numpy", fullgraph=True)
    for lengths in ([6, 4, 2], [7, 5, 3], [8, 7, 4], [7, 4, 2]):
        args = torch.randn(8, 3, 4), lengths
        assert_same(gradients(module, compiled, *args), gradients(module, step, *args))
    assert compiled.counters()["misses"] <= 3


def test_lengths_that_are_computed_are_a_break() -> None:
    module = torch.nn.GRU(4, 5)

    def step(x: Any) -> Any:
        lengths = (x[:, :, 0] != 0).sum(0)
        loss = module(pack_padded_sequence(x, lengths))[0].data.square().sum()
        loss.backward()
        return loss

    compiled = dg.compile(step, mode="max", backend="numpy")
    x = torch.randn(6, 3, 4)
    x[4:, 1:] = 0
    assert_same(gradients(module, compiled, x), gradients(module, step, x))
    assert all("int() of an array" in text for text in compiled.stats.breaks) and compiled.stats.breaks


def test_changed_batch_sizes_are_read_again() -> None:
    packed = pack_padded_sequence(torch.randn(3, 2, 4), torch.tensor([3, 3]))
    packed.batch_sizes.copy_(torch.tensor([1, 1, 4]).flip(0))
    padded, lengths = pad_packed_sequence(packed)
    assert padded.shape == (3, 4, 4) and lengths.tolist() == [3, 1, 1, 1]


def test_a_loop_over_a_cell_of_any_length() -> None:
    cell = torch.nn.LSTMCell(4, 5)

    def step(x: Any, h: Any, c: Any) -> Any:
        for t in range(x.shape[0]):
            h, c = cell(x[t], (h, c))
        loss = (h * h).sum()
        loss.backward()
        return loss

    compiled = dg.compile(step, mode="max")
    h, c = torch.randn(2, 5), torch.randn(2, 5)
    for steps in (70, 66):  # of a loop that stays in Python
        x = torch.randn(steps, 2, 4)
        for got, wanted in zip(gradients(cell, compiled, x, h, c), gradients(cell, step, x, h, c), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-6)
    assert any(line.endswith("[graph-from-outside]") for line in compiled.stats.breaks), compiled.stats.breaks
    assert compiled.stats.compiles < 10


def test_higher_gradients() -> None:
    about = {"dtype": torch.float64, "requires_grad": True}
    x, h = torch.randn(2, 2, 4, **about), torch.randn(1, 2, 2, **about)
    for name in ("LSTM", "GRU", "RNN"):
        module = getattr(torch.nn, name)(4, 2, dtype=torch.float64)
        call = (lambda x, h, m=module: m(x, (h, h))[0]) if name == "LSTM" else (lambda x, h, m=module: m(x, h)[0])
        assert torch.autograd.gradcheck(call, (x, h))
        assert torch.autograd.gradgradcheck(call, (x, h))


def test_vmap_and_jacobians_take_plain_operations() -> None:
    module = torch.nn.LSTM(3, 4, dtype=torch.float64)
    x = torch.randn(5, 6, 2, 3, dtype=torch.float64)
    with torch.no_grad():
        found = torch.vmap(lambda x: module(x)[0])(x)
        wanted = torch.stack([module(one)[0] for one in x])
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)


def test_the_biases_do_not_share_their_gradient() -> None:
    module = torch.nn.LSTM(3, 4)
    module(torch.randn(2, 1, 3))[0].sum().backward()
    assert torch.equal(module.bias_ih_l0.grad, module.bias_hh_l0.grad)
    module.bias_ih_l0.grad.zero_()
    assert module.bias_hh_l0.grad.abs().sum() > 0


def test_the_module_sees_weights_that_are_set_again() -> None:
    module = torch.nn.GRU(3, 4)
    x = torch.randn(2, 1, 3)
    before = module(x)[0]
    module.weight_ih_l0 = torch.nn.Parameter(torch.zeros(12, 3))
    assert module.all_weights[0][0] is module.weight_ih_l0
    assert not torch.equal(before, module(x)[0])
    found = torch.func.functional_call(module, {n: torch.zeros_like(p) for n, p in module.named_parameters()}, (x,))[0]
    assert not found.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_and_sizes_do_not_change_bits_of_a_row(dtype: Any) -> None:
    """A row of the batch is computed in the same way beside any other rows."""
    rng = np.random.default_rng(0)
    hidden = 19
    x, h, c, w = (rng.normal(size=s).astype(dtype) for s in ((4, 30, 4 * hidden), (30, hidden), (30, hidden), (4 * hidden, hidden)))
    whole = recurrent_forward("lstm", False, x, h, c, w, None, None, None, None)
    for rows in (slice(0, 1), slice(3, 10), slice(7, 30)):
        part = recurrent_forward("lstm", False, x[:, rows], h[rows], c[rows], w, None, None, None, None)
        for a, b in zip(whole, part, strict=True):
            np.testing.assert_array_equal(a[:, rows], b)


def test_arguments_of_the_wrong_kind_are_refused() -> None:
    x, h, w = np.ones((2, 3, 8), np.float32), np.ones((3, 2), np.float32), np.ones((8, 2), np.float32)
    assert len(recurrent_forward("lstm", False, x, h, h, w, None, None, None, None)) == 3
    for wrong in (
        ("lstm", False, x[0], h, h, w, None, None, None, None), ("lstm", False, x, h[:2], h, w, None, None, None, None),
        ("lstm", False, x.astype(float), h, h, w, None, None, None, None), ("gru", False, x, h, None, w, None, None, None, None),
        ("lstm", False, x, h, h, w, h, None, None, None), ("lstm", False, x, h, h, w, None, None, h, None),
        ("sin", False, x, h, h, w, None, None, None, None), ("lstm", False, None, h, h, w, None, None, None, None),
        ("lstm", False, x[0], h, h, w, None, None, None, np.array([1, 2])), ("lstm", False, x, h, h, None, None, None, None, None),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="recurrent_forward: "):
            recurrent_forward(*wrong)
    with pytest.raises(ValueError, match="kept"):
        recurrent_backward("lstm", False, x[..., :2].copy(), None, x[..., :2].copy(), None, None, h, h, w, None, None)
    with pytest.raises(ValueError, match="before"):
        recurrent_cell("tanh", x[0], x[0], h)
    with pytest.raises(ValueError, match="counts"):
        recurrent_before(False, x[0], h, np.array([1, 1]))


def test_how_exact_sigmoid_and_tanh_are() -> None:
    x = np.concatenate([np.linspace(-20, 20, 20001), np.geomspace(1e-6, 1, 2000), -np.geomspace(1e-6, 1, 2000), [-300.0, 300.0]])
    x = x.astype(np.float32)
    zeros = np.zeros((x.size, 4), np.float32)
    gates = zeros.copy()
    gates[:, 0] = x  # the input's gate
    gates[:, 2] = x  # the cell's
    _, _, found = recurrent_cell("lstm", gates, zeros, zeros[:, :1])
    for column, exact, units in ((0, 1 / (1 + np.exp(-x.astype(float))), 2.5), (2, np.tanh(x.astype(float)), 1.5)):
        assert (np.abs(found[:, column] - exact) <= units * np.spacing(np.abs(exact).astype(np.float32)) + 1e-38).all()
    special = np.array([[np.nan, 0, np.inf, 0], [np.inf, 0, -np.inf, 0]], np.float32)
    _, _, found = recurrent_cell("lstm", special, np.zeros_like(special), np.zeros((2, 1), np.float32))
    np.testing.assert_array_equal(found[:, [0, 2]], [[np.nan, 1], [1, -1]])
