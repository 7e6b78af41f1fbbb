"""Functions of tensors compiled: one graph, the same values, gradients, versions and aliasing as run plainly."""

from __future__ import annotations

import dis
import importlib
import pkgutil
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.frontend.library import registry
from dynagraph.frontend.library.definitions import followed
from dynagraph.torch.core import arrays, engine, nodes, tensor, terms
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.functions import arithmetic, convolution, reductions
from dynagraph.torch.nn.modules.module import Module

BACKEND = "numpy"


def matrix() -> Any:
    return torch.arange(12.0).reshape(3, 4).clone().requires_grad_()


def row() -> Any:
    return torch.linspace(0.5, 2.0, 4).requires_grad_()


def plain() -> Any:
    return torch.linspace(-1.0, 1.0, 4)


def same(a: Any, b: Any) -> None:
    """Tensors, or nested containers of them, agree in all that users see."""
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert np.array_equal(a.detach().numpy(), b.detach().numpy(), equal_nan=True), (a, b)
        assert a.requires_grad is b.requires_grad and a.is_leaf is b.is_leaf
        assert a._version == b._version
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            same(a.grad, b.grad)
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        same(list(a.values()), list(b.values()))
    else:
        assert a == b


def agrees(function: Callable[..., Any], *makers: Callable[[], Any], calls: int = 3, graphs: int = 1, breaks: int = 0) -> Any:
    """The function does the same compiled, on new arguments each time, and on ones that stay."""
    compiled = dg.compile(function, backend=BACKEND, mode="max")
    stay, stay_too = [m() for m in makers], [m() for m in makers]
    for _ in range(calls):
        ours, theirs = [m() for m in makers], [m() for m in makers]
        same(compiled(*ours), function(*theirs))
        same(ours, theirs)
        same(compiled(*stay), function(*stay_too))
        same(stay, stay_too)
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
    assert len(compiled.stats.breaks) == breaks, compiled.stats.breaks
    assert compiled.stats.compiles <= graphs, compiled.explain_misses()
    return compiled


# -- forward ----------------------------------------------------------------------------------------------------------


def test_arithmetic_is_one_graph():
    compiled = agrees(lambda x, y: (x * 2 + y).tanh().sum(dim=0), plain, plain)
    assert {"multiply", "add", "tanh", "sum"} <= {n.op.name for n in compiled.last_graph.nodes if n.kind == "call_function"}


def test_results_that_require_gradients_are_differentiated_later():
    compiled = dg.compile(lambda w, x: (w * x).exp().sum(), backend=BACKEND, mode="max")
    for _ in range(2):
        w, other = row(), row()
        loss = compiled(w, plain())
        assert loss.grad_fn.name() == "CompiledFunctionBackward" and not loss.is_leaf
        loss.backward()
        (other * plain()).exp().sum().backward()
        same(w.grad, other.grad)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def test_views_share_memory_with_their_base():
    compiled = dg.compile(lambda x: (x[1], x.t()), backend=BACKEND, mode="max")
    x = torch.zeros(3, 4)
    part, turned = compiled(x)
    part[0] = 7.0
    assert x[1, 0] == 7.0 and turned[0, 1] == 7.0 and part._base is x and part._version == x._version == 1


def test_numbers_that_change_make_no_new_programs():
    compiled = dg.compile(lambda x, k: x * k + 1 / k, backend=BACKEND, mode="max")
    for k in (2.0, 3.0, 4.5, 6.0):
        same(compiled(plain(), k), plain() * k + 1 / k)
    assert compiled.stats.compiles == 2


def test_sizes_that_change_make_one_more_program():
    function = lambda x, w: ((x @ w).relu() ** 2).mean()  # noqa: E731
    compiled = dg.compile(function, backend=BACKEND, mode="max")
    for n in (3, 5, 7, 11):
        x, w = torch.linspace(-1, 1, 4 * n).reshape(n, 4), torch.ones(4, 2)
        same(compiled(x, w), function(x, w))
    assert compiled.stats.compiles == 2


# -- backward ---------------------------------------------------------------------------------------------------------


def backward(w: Any, x: Any) -> Any:
    loss = (w * x).tanh().sum()
    loss.backward()
    return loss.detach()


def training_step(w: Any, b: Any, x: Any) -> Any:
    for p in (w, b):
        p.grad = None
    loss = ((x @ w.t() + b[:3]) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        for p in (w, b):
            p -= 0.1 * p.grad
    return loss.detach()


def accumulating(w: Any, b: Any) -> Any:
    (w * b).sum().backward()
    (w * w).sum().backward()
    return w.grad.clone()


def writing_to_views(w: Any, v: Any) -> Any:
    y = w * 2
    y[0] = v * 3
    y[1:, ::2] *= v[:2]
    y.sum().backward()
    return y.detach()


def writing_to_a_transposed_view(w: Any, v: Any) -> Any:
    y = w * 1
    y.t()[1] = v[:3]
    (y * y).sum().backward()
    return y.detach()


def second_order(w: Any) -> Any:
    g = torch.autograd.grad((w**3).sum(), w, create_graph=True)[0]
    (g * g).sum().backward()
    return g.detach()


def expanding(w: Any, v: Any) -> Any:
    y = v.expand(3, 4) * w
    return torch.autograd.grad(y.sum(), (w, v))


def writing_at_indices(w: Any, v: Any) -> Any:
    y = w.clone()
    y[torch.tensor([0, 2])] = v
    y[:, 1] = 0
    return torch.autograd.grad((y * w).sum(), (w, v))


def adam(p: Any, m: Any, v: Any, x: Any, t: int = 3) -> Any:
    p.grad = None
    ((p * x) ** 2).sum().backward()
    with torch.no_grad():
        m.mul_(0.9).add_(p.grad, alpha=0.1)
        v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
        p.sub_(0.01 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8))


def no_history_inside(w: Any) -> Any:
    with torch.no_grad():
        y = w * 2
    z = y + w
    z.sum().backward()
    return y, z.detach(), torch.is_grad_enabled()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("function", "makers"),
    [
        (backward, (row, plain)),
        (training_step, (matrix, row, plain)),
        (accumulating, (matrix, row)),
        (writing_to_views, (matrix, row)),
        (writing_to_a_transposed_view, (matrix, row)),
        (second_order, (matrix,)),
        (expanding, (matrix, row)),
        (writing_at_indices, (matrix, row)),
        (adam, (row, plain, lambda: plain() ** 2, plain)),
        (no_history_inside, (matrix,)),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_gradients_and_updates_are_one_graph(function, makers):
    agrees(function, *makers, graphs=4)


def test_steps_of_many_parameters_are_one_graph():
    """Adam by hand, with five arrays for each of 45 parameters: more arrays, and more objects, than a call keeps on its stack."""

    def step(params, means, squares, steps, x):
        loss = sum(((p * x) ** 2).sum() for p in params)
        for p in params:
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for p, m, v, t in zip(params, means, squares, steps):
                t += 1
                m.mul_(0.9).add_(p.grad, alpha=0.1)
                v.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                p.sub_(0.1 * (m / (1 - 0.9**t)) / (torch.sqrt(v / (1 - 0.99**t)) + 1e-8))
        return loss

    def state():
        params = [torch.linspace(0.5, 2.0 + k, 3).requires_grad_() for k in range(45)]
        return params, [torch.zeros(3) for _ in params], [torch.zeros(3) for _ in params], [torch.tensor(0.0) for _ in params]

    compiled, given, expected, x = dg.compile(step, backend=BACKEND), state(), state(), torch.linspace(-1.0, 1.0, 3)
    with dg.config.override(compile_budget=None, stay_eager=False):
        for _ in range(3):
            same(compiled(*given, x), step(*expected, x))
    assert compiled.stats.hits == 2 and not compiled.stats.breaks and len(compiled.entries) == 1
    same(given, expected)


def test_hooks_of_leaves_run():
    seen = []

    def function(w: Any) -> Any:
        handle = w.register_hook(lambda g: g * 2)
        (w * w).sum().backward()
        handle.remove()
        return w.grad

    w, other = row(), row()
    same(dg.compile(function, backend=BACKEND, mode="max")(w), function(other))
    assert not seen


def test_a_break_between_forward_and_backward():
    def function(w: Any, x: Any) -> Any:
        loss = (w * x).exp().sum()
        dg.graph_break()
        loss.backward()
        return loss.detach()

    compiled = dg.compile(function, backend=BACKEND, mode="max")
    for _ in range(3):
        w, other = row(), row()
        same(compiled(w, plain()), function(other, plain()))
        same(w, other)


# -- guards -----------------------------------------------------------------------------------------------------------


def test_what_requires_gradients_is_guarded():
    compiled = dg.compile(lambda w: (w * 2).sum(), backend=BACKEND, mode="max")
    assert not compiled(plain()).requires_grad
    assert compiled(row()).requires_grad
    with torch.no_grad():
        assert not compiled(row()).requires_grad
    assert compiled(row()).requires_grad and not compiled(plain()).requires_grad
    assert compiled.stats.compiles == 3


def test_the_mode_of_recording_is_set_where_the_function_sets_it():
    def function(x: Any, on: bool) -> Any:
        torch.set_grad_enabled(on)
        return x * 2

    compiled = dg.compile(function, backend=BACKEND, mode="max")
    try:
        for on in (False, True, False):
            compiled(plain(), on)
            assert torch.is_grad_enabled() is on
    finally:
        torch.set_grad_enabled(True)


def test_one_tensor_given_twice_is_another_program():
    def function(a: Any, b: Any) -> Any:
        (a * b).sum().backward()
        return a.grad

    compiled = dg.compile(function, backend=BACKEND, mode="max")
    a, b, x, y = row(), row(), row(), row()
    same(compiled(a, b), function(x, y))
    same(compiled(a, a), function(x, x))
    same([a, b], [x, y])


def test_dtypes_and_strides_are_guarded():
    function = lambda x: x.reshape(-1).cumsum(0)  # noqa: E731
    compiled = dg.compile(function, backend=BACKEND, mode="max")
    for x in (torch.ones(2, 3), torch.ones(3, 2).t(), torch.ones(2, 3, dtype=torch.float64), torch.ones(2, 3, dtype=torch.int64)):
        same(compiled(x), function(x))


def test_the_default_dtype_is_guarded():
    compiled = dg.compile(lambda: torch.ones(2) * 0.5, backend=BACKEND, mode="max")
    assert compiled().dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled().dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert compiled().dtype is torch.float32


def test_errors_are_those_of_the_plain_call():
    compiled = dg.compile(lambda a, b: a @ b, backend=BACKEND, mode="max")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        compiled(torch.ones(2, 3), torch.ones(2, 3))
    compiled = dg.compile(lambda w: w.add_(1), backend=BACKEND, mode="max")
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        compiled(row())
    w = row()
    y = (w * w).exp()
    compiled = dg.compile(lambda y: y.mul_(2).sum(), backend=BACKEND, mode="max")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        compiled(y).backward()


def test_shortcuts_of_the_capture_are_what_its_python_gives(monkeypatch):
    """`frontend/library/tensors.py` against following the Python of the same functions."""
    def function(w: Any, x: Any) -> Any:
        y = torch.mul((w * x + 1).sin(), 2) / torch.add(x, w)
        y[0] = x[1]
        y.mul_(w)
        (y.softmax(0) * x).sum().backward()
        with torch.no_grad():
            w.sub_(w.grad, alpha=0.5)
        return y.detach(), x.max(dim=0)

    short = dg.compile(function, backend=BACKEND, mode="max")
    w, x = row(), plain()
    same(short(w, x), function(other := row(), plain()))
    same(w, other)
    without_shortcuts(monkeypatch)
    long = dg.compile(function, backend=BACKEND, mode="max")
    w = row()
    same(long(w, x), function(other := row(), plain()))
    same(w, other)
    assert operations(long) == operations(short)


def without_shortcuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have captures follow the Python of all that `frontend/library` has shortcuts for in dynagraph.torch."""
    methods = [getattr(terms.ArrayTerm, f"__{name}__") for name in ("add", "sub", "mul", "truediv")]
    of_nodes = (nodes.Node.operand, nodes.Node.result, nodes.Node.pull)
    of_engine = (engine._Run.run, engine._Run.leaf)
    of_tensors = (tensor.quiet, tensor.record, tensor.write, tensor.check_write, tensor.check_overlap)
    of_functions = (arithmetic._two, arrays.ufunc_reduce, reductions.in_order, convolution._has_kernels)
    of_terms = (terms.ArrayTerm, terms.ArrayTerm.call, *methods)
    for shortcut in (*of_tensors, *of_functions, *of_terms, *of_nodes, *of_engine, Module.__getattr__):
        assert registry.meaning_of(shortcut) is not None  # looked for, it is registered
        monkeypatch.delitem(registry._MEANINGS, shortcut)
    for name in ("apply", "made", "wrap"):
        monkeypatch.setitem(registry._MEANINGS, getattr(tensor, name), followed(getattr(tensor, f"{name}_in_python")))


def operations(compiled: Any) -> list[str]:
    return [n.op.name for n in compiled.last_graph.nodes if n.kind == "call_function"]


def test_shortcuts_of_layers_and_of_backward_are_what_their_python_gives(monkeypatch):
    nn = torch.nn

    def layers() -> Any:
        torch.manual_seed(0)
        made = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8, 3))
        made[0].weight.grad = torch.ones(2, 1, 3, 3)  # one is added to, the others are new
        return made, torch.rand(2, 1, 4, 4)

    def step(model: Any, x: Any) -> Any:
        y = model(x)
        y += y.tanh()
        y[0].mul_(2)
        kept = model[1].weight * model[1].weight
        (y.exp().sum() + kept.sum()).backward()
        return y.detach(), [p.grad for p in model.parameters()], model[1].running_mean, model[1].running_var

    expected = step(*layers())
    short = dg.compile(step, backend=BACKEND, mode="max")
    same(short(*layers()), expected)
    without_shortcuts(monkeypatch)
    long = dg.compile(step, backend=BACKEND, mode="max")
    same(long(*layers()), expected)
    assert operations(long) == operations(short)


def test_hooks_run_where_backward_is_captured():
    def step(w: Any, x: Any) -> Any:
        y = w * x
        y.register_hook(lambda g: g * 3)
        w.register_hook(lambda g: g + 1)
        y.retain_grad()
        (y * y).sum().backward()
        return w.grad, y.grad

    same(dg.compile(step, backend=BACKEND, mode="max")(row(), plain()), step(row(), plain()))


def test_backward_that_raises_ends_where_its_error_is_caught():
    def refuse(g: Any) -> Any:
        raise ValueError("no such gradient")

    def step(w: Any, x: Any) -> Any:
        y = w * x
        y.register_hook(refuse)
        said = []
        for begun in (y.sum().backward, lambda: engine.queue_callback(print)):
            try:
                begun()
            except (RuntimeError, ValueError) as error:
                said.append(str(error))
        (w * x * 2).sum().backward()
        return w.grad, said

    agrees(step, row, plain, graphs=2)
    assert step(row(), plain())[1] == ["no such gradient", "Final callbacks can only be installed during backward pass."]


def test_retained_gradients_follow_writes():
    def step(w: Any, x: Any) -> Any:
        y = w * x
        y.retain_grad()
        y.register_hook(lambda g: g * 3)
        y.mul_(x)
        v = y[1:]
        v.retain_grad()
        y.mul_(2)
        (v * v).sum().backward()
        return w.grad, y.grad, v.grad

    agrees(step, row, plain, graphs=2)


def test_a_retained_gradient_follows_a_write_of_the_program():
    def of(function: Any) -> Any:
        w = row()
        y = w * 2
        y.retain_grad()
        function(y, w)
        (y * y).sum().backward()
        return w.grad, y.grad

    def function(y: Any, w: Any) -> Any:
        y.mul_(w * 3)

    compiled = dg.compile(function, backend=BACKEND, mode="max")
    for _ in range(3):
        same(of(compiled), of(function))
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error


def test_errors_of_what_captures_call_at_once_are_caught_where_the_code_catches_them():
    def function(x: Any) -> Any:
        try:
            return x.reshape(-1, -1)
        except RuntimeError as error:
            return x * 2, str(error)

    compiled = dg.compile(function, backend=BACKEND, mode="max")
    found, expected = compiled(plain()), function(plain())
    same(found[0], expected[0])
    assert found[1] == expected[1] and not compiled.stats.breaks and not compiled.stats.fallbacks


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield part
            yield from _codes(part)


def test_modules_list_the_globals_that_they_set_again():
    """Captures take what modules of dynagraph.torch name as unchanging, but for what ``__dynagraph_mutable__`` lists."""
    unlisted = []
    for about in pkgutil.walk_packages(torch.__path__, "dynagraph.torch."):
        if about.name.endswith("__main__"):
            continue
        try:
            listed = getattr(importlib.import_module(about.name), "__dynagraph_mutable__", ())
        except ModuleNotFoundError as error:
            assert error.name in ("cupy", "mpi4py")  # optional: an engine's module sets no global
            listed = ()
        for code in _codes(about.module_finder.find_spec(about.name).loader.get_code(about.name)):
            stored = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")}
            unlisted += [f"{about.name}: {name}" for name in stored - set(listed)]
    assert not unlisted


# -- hooks, Functions, checks of values -------------------------------------------------------------------------------


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, k: float) -> Any:
        ctx.save_for_backward(x)
        ctx.k = k
        return x**3 * k

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 * x**2 * ctx.k, None


def of_a_function(w: Any) -> Any:
    y = Cube.apply(w, 2.0)
    y.sum().backward()
    return y, w.grad


def with_a_hook(w: Any) -> Any:
    y = w * 2
    y.register_hook(lambda g: g.clamp(-0.5, 0.5))
    (y**2).sum().backward()
    return w.grad


def with_a_hook_that_is_taken_off(w: Any) -> Any:
    handle = w.register_hook(lambda g: g * 2)
    (w * w).sum().backward()
    handle.remove()
    return w.grad


def with_gradients_of_results(w: Any) -> Any:
    y = w * 2
    y.retain_grad()
    (y**2).sum().backward()
    return w.grad, y.grad, y


@pytest.mark.parametrize("function", [of_a_function, with_a_hook, with_a_hook_that_is_taken_off, with_gradients_of_results])
def test_functions_and_hooks_are_part_of_the_graph(function):
    agrees(function, row, graphs=3)


def test_a_hook_is_taken_off_once():
    x = row()
    first = x.register_hook(lambda g: g * 2)
    first.remove()
    x.register_hook(lambda g: g * 3)
    first.remove()
    x.sum().backward()
    same(x.grad, torch.full((4,), 3.0))


def test_a_hook_put_on_by_a_program_is_taken_off_outside():
    compiled = dg.compile(lambda w: ((y := w * 2), y.register_hook(lambda g: g * 3)), backend=BACKEND, mode="max")
    for taken in (False, True, False):
        w = row()
        y, handle = compiled(w)
        if taken:
            handle.remove()
        y.sum().backward()
        same(w.grad, torch.full((4,), 2.0 if taken else 6.0))


@pytest.mark.parametrize(
    ("function", "good", "bad", "error"),
    [
        (
            lambda x, m: x.masked_scatter(m, torch.ones(2)), torch.tensor([True, True, False, False]), torch.ones(4) > 0,
            "Number of elements of source < number of ones in mask",
        ),
        (torch.quantile, torch.tensor([0.5]), torch.tensor([1.5]), "q values must be in the range"),
        (
            lambda x, w: torch.cov(x, fweights=w), torch.tensor([1, 2, 3, 4]), torch.tensor([1, -2, 3, 4]),
            "fweights cannot be negative",
        ),
        (
            lambda x, r: torch.repeat_interleave(x, r, output_size=6), torch.tensor([1, 2, 3, 0]), torch.tensor([1, 2, 3, 4]),
            "allocated size does not match required size",
        ),
        (lambda x, y: torch.histc(y, 4), torch.ones(4), torch.tensor([1.0, float("nan")]).repeat(2), "is not finite"),
        (lambda x, y: torch.histogram(y, 4)[0], torch.ones(4), torch.tensor([1.0, float("inf")]).repeat(2), "is not finite"),
        (lambda x, p: torch.bernoulli(p).shape, torch.ones(4) / 2, torch.ones(4) * 2, "Expected p_in >= 0 && p_in <= 1"),
    ],
)  # fmt: skip
def test_values_are_checked(function, good, bad, error):
    compiled = dg.compile(function, backend=BACKEND, mode="max")
    same(compiled(plain(), good), function(plain(), good))
    with pytest.raises(RuntimeError, match=error):
        compiled(plain(), bad)
    same(compiled(plain(), good), function(plain(), good))
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks and compiled.stats.fallbacks == 0


def test_limits_of_dtypes_are_constants():
    agrees(lambda x: x.half().masked_fill(x > 0, torch.finfo(torch.float16).min).softmax(0), plain)
    agrees(lambda x: x.masked_fill(x > 0, -1e9).softmax(0), plain)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_and_numbers(dtype):
    """Numbers are not rounded before; what they are computed by is the same function in all programs."""

    def function(x):
        y = x.to(dtype)
        return ((((1.5 - y) * 0.3 + 1) / 3 - 0.1) * 2.0**y + y % 0.7).float()

    agrees(function, lambda: plain().requires_grad_())


def test_history_from_outside_is_part_of_the_graph():
    def function(y: Any, w: Any) -> Any:
        (first,) = torch.autograd.grad((y * w).sum(), w, retain_graph=True)
        y.sum().backward()
        return first, w.grad

    def made(w: Any) -> Any:
        return (w * 2).sin() * w.cos() + w.exp()

    compiled = dg.compile(function, backend=BACKEND, mode="max")
    for _ in range(5):
        a, b = row(), row()
        y = made(a)
        same(compiled(y, a), function(made(b), b))
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.sum().backward()
    assert compiled.stats.compiles == 2 and not compiled.stats.breaks and compiled.stats.fallbacks == 0


class Named:
    def __repr__(self) -> str:
        return "Named()"


def test_tensors_in_containers_are_printed_as_they_are(capsys):
    def function() -> None:
        x = torch.tensor([1, 2])
        print((x, x), [x], {"x": x}, x, [Named(), "text"])

    compiled = dg.compile(function, backend=BACKEND, mode="max")
    compiled()
    printed = capsys.readouterr().out
    function()
    assert printed == capsys.readouterr().out


def test_operations_on_large_tensors_warn_of_nothing():
    """They are compiled by themselves, which nobody asked for; warnings are errors in tests."""
    x = torch.ones(1 << 18)
    for _ in range(30):
        assert torch.allclose(torch.sigmoid(x)[:1], torch.sigmoid(x[:1]))
    for dim in range(3):
        for keepdim in (False, True):
            assert x.reshape(64, 64, 64).sum(dim=dim, keepdim=keepdim).max() == 64


def test_limits_of_pythons_types() -> None:
    assert (str(torch.finfo(float)), str(torch.iinfo(int))) == (str(torch.finfo(torch.float64)), str(torch.iinfo(torch.int64)))
    assert torch.finfo(complex).dtype == "float64"
    with pytest.raises(TypeError, match=r"torch\.bool is not supported by torch\.iinfo"):
        torch.iinfo(bool)
    agrees(lambda x: x.clamp(max=torch.finfo(float).eps), plain)


def test_a_primitive_may_be_made_in_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first gradient of a gradient in a process records operations that nobody has called yet."""
    monkeypatch.delitem(PRIMITIVES, "own_matmul", raising=False)

    def of_a_product(w: Any) -> Any:
        x = plain().requires_grad_()
        (g,) = torch.autograd.grad(torch.tanh(w @ x.view(4, 1)).sum(), x, create_graph=True)
        return torch.autograd.grad((g * g).sum(), w)

    compiled = dg.compile(of_a_product, fullgraph=True, backend=BACKEND)
    w = matrix()
    (given,), (wanted,) = compiled(w), of_a_product(w)
    assert "own_matmul" in PRIMITIVES
    np.testing.assert_allclose(given.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_ctc_of_concatenated_targets_is_one_program() -> None:
    """Their lengths are read by guards."""

    def step(x: Any, targets: Any, lengths: Any) -> Any:
        loss = torch.nn.functional.ctc_loss(x.log_softmax(-1), targets, torch.tensor([6, 6]), lengths)
        loss.backward()
        return loss.detach(), x.grad

    compiled = dg.compile(step, backend=BACKEND, mode="max", fullgraph=True)
    x = torch.linspace(-1, 1, 48).reshape(6, 2, 4)
    for lengths in ([3, 2], [2, 3], [4, 1], [4, 2]):
        targets = torch.arange(sum(lengths)) % 3 + 1
        got, expected = (f(x.clone().requires_grad_(), targets, torch.tensor(lengths)) for f in (compiled, step))
        assert all(torch.equal(a, b) for a, b in zip(got, expected))
    assert compiled.counters()["misses"] <= 2


@pytest.mark.parametrize("shape, strides", [((0, 3), (3, 1)), ((3, 0, 2), (2, 2, 1)), ((0,), (1,))])
def test_strides_of_tensors_without_elements(shape: Any, strides: Any) -> None:
    for make in (torch.empty, torch.zeros):
        assert make(shape).stride() == strides
        assert dg.compile(lambda x, m=make: (x + 1, m(shape).stride()), backend=BACKEND, mode="max")(torch.ones(2))[1] == strides
    assert torch.zeros(4, 3)[:0].stride() == (3, 1) and torch.zeros(4, 3).t()[:, :0].stride() == (1, 3)


def test_windows_are_views_of_one_program() -> None:
    def step(x: Any) -> Any:
        patches = x.unfold(0, 2, 2).unfold(1, 3, 1)
        loss = (patches * patches).sum()
        loss.backward()
        return loss.detach(), x.grad

    compiled = dg.compile(step, backend=BACKEND, mode="max", fullgraph=True)
    for n in (6, 6, 8, 10):
        x = torch.linspace(-1, 1, n * n).reshape(n, n)
        got, expected = (f(x.clone().requires_grad_()) for f in (compiled, step))
        assert all(torch.equal(a, b) for a, b in zip(got, expected))
    assert compiled.counters()["misses"] == 2
    x = torch.arange(8.0)
    view = dg.compile(lambda x: x.unfold(0, 4, 2), backend=BACKEND, mode="max", fullgraph=True)(x)
    assert view.stride() == (2, 1) and view.shape == (3, 4)
    view[0] = 7.0
    assert x.tolist() == [7.0] * 4 + [4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x[:, :-1], lambda x: x[1:], lambda x: x[::2, -2:], lambda x: x[..., 1:-1:3], lambda x: x.unfold(0, 3, 2),
        lambda x: torch.slice_scatter(x, x[:-1], 0, 1), lambda x: x * x.shape[0] * x.shape[1] * 32,
    ],
)  # fmt: skip
def test_parts_of_sizes_that_change_are_one_more_program(part: Any) -> None:
    def step(x: Any) -> Any:
        loss = (part(x) * 2).sum()
        loss.backward()
        return loss.detach(), x.grad

    compiled = dg.compile(step, backend=BACKEND, mode="max", fullgraph=True)
    for shape in ((6, 7), (6, 7), (7, 8), (9, 12), (8, 11)):
        x = torch.linspace(-1, 1, shape[0] * shape[1]).reshape(shape)
        got, expected = (f(x.clone().requires_grad_()) for f in (compiled, step))
        assert all(torch.equal(a, b) for a, b in zip(got, expected))
    assert compiled.counters()["misses"] == 2
