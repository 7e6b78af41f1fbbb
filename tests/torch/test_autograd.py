"""Autograd: depth, memory, threads, and what a record of PyTorch's behaviour cannot show."""

from __future__ import annotations

import contextlib
import doctest
import gc
import signal
import sys
import threading
import tracemalloc
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from dynagraph.torch.autograd import forward_ad, function, functional, graph
from dynagraph.torch.core import engine
from dynagraph.torch.core.batching import BatchedArray
from dynagraph.torch.core.engine import TensorTerm
from dynagraph.torch.core.terms import ArrayTerm
from dynagraph.torch.func import batch, transforms
from dynagraph.torch.utils.checkpoint import checkpoint

DEEP = 100_000


def chain(x: Any, length: int = DEEP) -> Any:
    for _ in range(length):
        x = x + 1
    return x


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What dies here dies without the collector of cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class TestDepth:
    def test_backward_of_a_long_chain(self) -> None:
        x = torch.ones(2, requires_grad=True)
        chain(x).sum().backward()
        assert x.grad.tolist() == [1, 1]

    def test_a_long_chain_is_freed(self) -> None:
        y = chain(torch.ones(2, requires_grad=True))
        alive = weakref.ref(y.grad_fn.next_functions[0][0])
        del y
        assert alive() is None

    def test_a_long_chain_of_views_and_of_functions_is_freed(self) -> None:
        class Same(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 1

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g

        x = torch.ones(2, requires_grad=True)
        y = x * 1
        for _ in range(20_000):
            y = Same.apply(y).view(2)
        y.sum().backward()
        del y
        assert x.grad.tolist() == [1, 1]

    def test_gradients_of_a_long_chain_that_are_recorded(self) -> None:
        x = torch.ones(2, requires_grad=True)
        y = x
        for _ in range(20_000):
            y = y * 1.0
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        assert g.tolist() == [1, 1]
        del g, y

    def test_a_long_chain_of_gradients(self) -> None:
        x = torch.ones((), requires_grad=True)
        y = chain(x, 20_000)
        assert torch.autograd.grad(y, [x, y])[0] == 1


def several_results() -> tuple[Any, Any]:
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    values, _ = (x * 1.5).max(dim=1)
    a, b = (x * x).unbind(0)[:2]
    return values.sum() + (a * b).sum() + x.sort(dim=0).values[1].prod(), (x,)


def broadcast_operands() -> tuple[Any, Any]:
    x, bias, scale = (torch.linspace(-1, 1, n).requires_grad_() for n in (6, 3, 1))
    return ((x.reshape(2, 3) + bias) / (scale - 3) * bias.exp()).tanh().mean() * 2, (x, bias, scale)


def halves_and_numbers() -> tuple[Any, Any]:
    x = torch.linspace(-1, 1, 5).half().requires_grad_()
    y = torch.tensor(0.25, requires_grad=True)
    return (-(x * 2 - 1).float() * y + (3 - y) * y / 2).sum(), (x, y)


def complex_numbers() -> tuple[Any, Any]:
    x = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    w = torch.tensor([0.5, -0.5], requires_grad=True)
    return ((x * w).conj() * x).real.sum() + (x / (w + 2)).imag.sum(), (x, w)


def written_and_viewed() -> tuple[Any, Any]:
    x, w = torch.ones(4, requires_grad=True), torch.full((2, 2), 3.0, requires_grad=True)
    y = x * 2
    y[1:3] = w[0] * w[1]
    y.view(2, 2).mul_(w)
    return (y.view(2, 2).t() @ w).sum(), (x, w)


def hooks_and_functions() -> tuple[Any, Any]:
    x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    y = x * w
    y.register_hook(lambda g: g * 3)
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + outputs[0], inputs[1]))
    y.retain_grad()
    w.register_hook(lambda g: g + 1)
    return (Doubled.apply(y) * Unused.apply(x, w)).sum(), (x, w, y)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        own = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            (own * own).sum().backward()  # within backward
        return g * own.grad


class Unused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        return x + w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g, None


PROGRAMS = (several_results, broadcast_operands, halves_and_numbers, complex_numbers, written_and_viewed, hooks_and_functions)


class TestRunsInC:
    """Most runs of backward are in C, which does what `_Run.run` does."""

    @pytest.mark.parametrize("program", PROGRAMS)
    def test_gradients_are_those_of_the_python(self, program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def gradients() -> list[Any]:
            result, tensors = program()
            result.backward(retain_graph=True)
            result.backward()
            with pytest.raises(RuntimeError, match="a second time"):
                result.backward()
            return [t.grad._array for t in tensors]

        own = gradients()
        monkeypatch.setattr(engine, "_run_plain", None)
        for mine, other in zip(own, gradients(), strict=True):
            assert mine.dtype == other.dtype and mine.shape == other.shape and mine.tobytes() == other.tobytes()

    def test_nodes_run_in_the_order_of_the_python(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def order() -> list[int]:
            class Noted(torch.autograd.Function):
                @staticmethod
                def forward(ctx: Any, x: Any, k: int) -> Any:
                    ctx.k = k
                    return x * 1

                @staticmethod
                def backward(ctx: Any, g: Any) -> Any:
                    seen.append(ctx.k)
                    return g, None

            seen: list[int] = []
            tensors = [torch.ones(1, requires_grad=True)]
            for k in range(60):
                tensors.append(Noted.apply(tensors[(k * k + 3) % len(tensors)] + tensors[k // 3], k))
            torch.autograd.backward([tensors[7].sum(), *(t.sum() for t in tensors[-20:])])
            return seen

        own = order()
        monkeypatch.setattr(engine, "_run_plain", None)
        assert own == order() and len(own) > 20

    def test_no_reference_is_lost_or_kept(self, no_collector: None) -> None:
        x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        c = torch.ones(2, 3)

        def build() -> Any:
            return ((x * w).tanh() / (c + w) - 1).sum()

        def fail() -> None:
            y = x * 2
            z = (y * y).sum()
            y.add_(1)
            with contextlib.suppress(RuntimeError):
                z.backward()

        kept = build()
        held = (x, w, c, x._array, w._array, kept.grad_fn, type(kept.grad_fn), np.dtype(np.float32), None, 0, ())
        for run, times in ((lambda: kept.backward(retain_graph=True), 10_000), (lambda: build().backward(), 1_000), (fail, 1_000)):
            for _ in range(20):
                run()
            before = [sys.getrefcount(each) for each in held], sys.getallocatedblocks()
            for _ in range(times):
                run()
            after = [sys.getrefcount(each) for each in held], sys.getallocatedblocks()
            assert all(abs(a - b) < 50 for a, b in zip(before[0], after[0], strict=True))
            assert abs(after[1] - before[1]) < times // 2

    def test_what_ran_before_an_error_stays(self) -> None:
        class Failing(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 1

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                raise ZeroDivisionError

        x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        y = (Failing.apply(x) + w.exp()).sum()
        with pytest.raises(ZeroDivisionError):
            y.backward()
        assert x.grad is None and w.grad is not None and torch.is_grad_enabled()
        with pytest.raises(RuntimeError, match="Final callbacks"):
            engine.queue_callback(print)

    @pytest.mark.parametrize("fast_mode", [False, True])
    def test_gradcheck_leaves_inputs_as_they_are_where_the_function_raises(self, fast_mode: bool) -> None:
        calls = 0

        def fails_later(x: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 2:
                raise ZeroDivisionError
            return x * 2

        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        with pytest.raises(ZeroDivisionError):
            torch.autograd.gradcheck(fails_later, (x,), fast_mode=fast_mode)
        assert x.tolist() == [1.0, 1.0, 1.0]

    @pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no setitimer")
    def test_signals_are_handled_meanwhile(self) -> None:
        def interrupt(*_: Any) -> None:
            raise InterruptedError

        y = chain(torch.ones(2, requires_grad=True), 20_000).sum()
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with pytest.raises(InterruptedError):
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                y.backward()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert torch.is_grad_enabled()

    def test_hooks_ask_which_nodes_run(self) -> None:
        x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        y, other = x * 2, (w * 2).grad_fn
        found = []
        y.register_hook(lambda g: found.append(engine.will_run([y.grad_fn, x, other, w])))
        y.sum().backward()
        assert found == [[True, True, False, False]]


class TestMemory:
    def test_nothing_is_kept_in_no_grad(self, no_collector: None) -> None:
        w = torch.ones(1000, requires_grad=True)
        seen = []
        with torch.no_grad():
            y = w * 2
            seen.append(weakref.ref(y))
            y = (y * w).exp()
        assert seen[0]() is None and y.grad_fn is None

    def test_memory_of_no_grad(self) -> None:
        def peak(run: Any) -> int:
            tracemalloc.start()
            run()
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return found

        w = torch.ones(100_000, requires_grad=True)

        def run() -> Any:
            y = w
            for _ in range(20):
                y = (y * w).exp() * 0
            return y

        def quiet() -> Any:
            with torch.no_grad():
                return run()

        assert peak(quiet) < 4 * w.nbytes < 20 * w.nbytes < peak(run)

    def test_a_frozen_part_keeps_nothing(self, no_collector: None) -> None:
        x = torch.ones(3)
        frozen = torch.full((3,), 2.0)
        hidden = x * frozen
        seen = weakref.ref(hidden)
        y = hidden.exp()
        del hidden
        w = torch.ones(3, requires_grad=True)
        z = y * w
        assert seen() is None and z.requires_grad and not y.requires_grad

    def test_operands_of_frozen_weights_are_not_kept(self, no_collector: None) -> None:
        x = torch.ones(2, 2, requires_grad=True)
        h = x * 1
        y = h @ torch.ones(2, 2)  # the gradient by h reads the weight only
        seen = weakref.ref(h)
        del h
        assert seen() is None
        y.sum().backward()
        assert x.grad.tolist() == [[2, 2], [2, 2]]

    @pytest.mark.parametrize("keep", [False, True])
    def test_backward_frees_what_was_saved(self, keep: bool, no_collector: None) -> None:
        x = torch.ones(3, requires_grad=True)
        h = x * 2
        y = (h * h).sum()
        seen = weakref.ref(h)
        del h
        assert seen() is not None
        y.backward(retain_graph=keep)
        assert (seen() is not None) == keep

    def test_graphs_die_with_their_results(self, no_collector: None) -> None:
        x = torch.ones(3, requires_grad=True)
        y = (x * 2).exp()
        seen = weakref.ref(y.grad_fn)
        del y
        assert seen() is None

    def test_functions_die_with_their_results(self, no_collector: None) -> None:
        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                y = x.exp()
                ctx.save_for_backward(x, y)
                return y

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * ctx.saved_tensors[1]

        x = torch.ones(3, requires_grad=True)
        y = Exp.apply(x)
        seen = weakref.ref(y.grad_fn), weakref.ref(y)
        y.sum().backward()
        del y
        assert [s() for s in seen] == [None, None]

    def test_checkpoints_keep_inputs_only(self, no_collector: None) -> None:
        seen = []

        def function(x: Any) -> Any:
            h = x * 2
            seen.append(weakref.ref(h))
            return (h * h).exp() * h

        x = torch.ones(3, requires_grad=True)
        y = checkpoint(function, x, use_reentrant=False)
        assert seen[0]() is None
        y.sum().backward()
        assert seen[1]() is None and x.grad is not None

    def test_the_leaf_of_a_graph_stays(self) -> None:
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        seen = weakref.ref(x)
        del x
        y.sum().backward()
        assert seen().grad.tolist() == [2, 2, 2]


class TestThreads:
    def test_backward_in_several_threads(self) -> None:
        w = torch.ones(1000, dtype=torch.float64, requires_grad=True)
        found = {}

        def run(k: int) -> None:
            for _ in range(20):
                found[k] = torch.autograd.grad(((w * k) ** 2).sum(), w)[0]

        threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all((found[k] == 2 * k * k).all() for k in range(4))

    def test_modes_and_hooks_are_of_a_thread(self) -> None:
        seen = []

        def run() -> None:
            seen.extend([torch.is_grad_enabled(), torch.is_inference_mode_enabled()])
            x = torch.ones(2, requires_grad=True)
            x.exp().sum().backward()

        def never(x: Any) -> Any:
            raise AssertionError("of another thread")

        with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(never, never), torch.autograd.set_detect_anomaly(True):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        assert seen == [True, False]


class TestVmap:
    def test_products_run_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Gradients of each example of a perceptron: no product of a single example."""
        n = 64
        x, w1, w2 = torch.randn(n, 5), torch.randn(7, 5), torch.randn(1, 7)
        original = BatchedArray.__array_ufunc__
        calls = []

        def watched(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            calls.append(ufunc.__name__)
            return original(self, ufunc, method, *inputs, **kwargs)

        monkeypatch.setattr(BatchedArray, "__array_ufunc__", watched)

        def loss(w1: Any, w2: Any, x: Any) -> Any:
            return (torch.tanh(w1 @ x) @ w2.T).sum()

        found = torch.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(None, None, 0))(w1, w2, x)
        assert found[0].shape == (n, 7, 5) and found[1].shape == (n, 1, 7)
        assert len(calls) < n  # not some for each example
        for k in (0, 63):
            one = torch.func.grad(loss, argnums=(0, 1))(w1, w2, x[k])
            assert torch.allclose(found[0][k], one[0], atol=1e-5) and torch.allclose(found[1][k], one[1], atol=1e-5)

    def test_a_graph_outlives_its_vmap(self) -> None:
        w = torch.tensor([1.0, 2.0], requires_grad=True)
        y = torch.vmap(lambda a: (a * w).exp())(torch.ones(3, 2))
        g = torch.vmap(lambda v: torch.autograd.grad(y, w, v, retain_graph=True)[0])(torch.ones(4, 3, 2))
        assert torch.allclose(g, 3 * w.exp().detach().expand(4, 2))

    def test_no_examples(self) -> None:
        assert torch.vmap(lambda a: a.sort().values * 2)(torch.ones(0, 3)).shape == (0, 3)

    def test_examples_are_written_to(self) -> None:
        x = torch.zeros(3, 2)
        version = x._version
        torch.vmap(lambda a: a.add_(1))(x)
        assert x.tolist() == [[1, 1]] * 3 and x._version > version


class TestTerms:
    """What gradients are written with."""

    def test_attributes_may_be_left_out_as_under_the_ir(self) -> None:
        array = ArrayTerm(np.ones((2, 3)))
        assert array.call("sum", axis=(0,)).array.tolist() == [2, 2, 2]
        assert array.call("pad", widths=((1, 0), (0, 0))).array.tolist() == [[0] * 3, [1] * 3, [1] * 3]
        x = torch.ones(2, 3, requires_grad=True)
        term = TensorTerm(x).call("sum", axis=(0,)).call("pad", widths=((1, 0),))
        (term * term).tensor.sum().backward()
        assert x.grad.tolist() == [[4, 4, 4], [4, 4, 4]]

    def test_a_row_of_any_number_of_operands_keeps_them(self) -> None:
        x, values = torch.ones(4, requires_grad=True), torch.tensor([2.0, 3.0], requires_grad=True)
        places = TensorTerm(torch.tensor([1, 3]))
        y = TensorTerm(x).call("scatter", TensorTerm(values), places, axes=(0,), at=0).tensor
        (y * y).sum().backward()
        assert x.grad.tolist() == [2, 0, 2, 0] and values.grad.tolist() == [4, 6]


def test_documentation_of_contexts_runs() -> None:
    for module in (forward_ad, function, functional, graph, batch, transforms):
        assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_gradients_by_inputs_of_any_iterable_and_by_name() -> None:
    w, v = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    loss = (w * w).sum() + 3 * v.sum()
    by_iterator = torch.autograd.grad(loss, iter([w, v]), retain_graph=True)
    by_name = torch.autograd.grad(loss, {"v": v, "w": w}, retain_graph=True)
    assert [g.tolist() for g in by_iterator] == [[2.0, 2.0], [3.0, 3.0]]
    assert {name: g.tolist() for name, g in by_name.items()} == {"v": [3.0, 3.0], "w": [2.0, 2.0]}
    loss.backward(inputs={"v": v}, retain_graph=True)
    torch.autograd.backward(loss, inputs=iter([v]))
    assert w.grad is None and v.grad.tolist() == [6.0, 6.0]
    with pytest.raises(TypeError, match=r"`inputs` argument to `grad\(\)` must be a dict, not mappingproxy"):
        torch.autograd.grad(w.sum(), types.MappingProxyType({"w": w}))
    with pytest.raises(RuntimeError, match=r"`inputs` argument to `grad\(\)` cannot be empty"):
        torch.autograd.grad(w.sum(), iter([]))


def test_an_operation_keeps_its_operands_when_another_thread_replaces_them() -> None:
    """A product runs without the GIL; the array that it reads must not be freed, and given to others, meanwhile."""
    n, ends = 1024, threading.Event()
    left, x = torch.ones(n, n), torch.ones(n, n)

    def replace() -> None:
        number = 0
        while not ends.is_set():
            number = number % 7 + 1
            x.data = torch.full((n, n), float(number))
            [torch.full((n, n), 99.0) for _ in range(2)]  # in the memory that is free

    other = threading.Thread(target=replace)
    other.start()
    try:
        for _ in range(100):
            found = torch.matmul(left, x).numpy()
            assert (found == found[0, 0]).all()
            assert found[0, 0] in [n * k for k in range(1, 8)]
    finally:
        ends.set()
        other.join()
