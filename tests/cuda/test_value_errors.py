"""Errors about values (an index out of bounds, a target that is no class) of functions compiled for tensors on a device.

Each is the plain call's, raised by the same call, before anything was written that the plain call would not write.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.backends.cuda import driver
from dynagraph.backends.cuda.checks import CheckFailedError, Checks
from dynagraph.backends.cuda.program import DeviceProgram
from dynagraph.backends.cuda.replay import Recording
from dynagraph.cuda import late_errors
from tests.cuda.device import QueuedDevice
from tests.cupy_arrays import stand_in

F = torch.nn.functional


@pytest.fixture
def cp(fake: Any) -> Iterator[Any]:
    with dg.config.override(stay_eager=False):  # no call runs eagerly just to see how long that takes
        yield fake


@pytest.fixture
def device(cp: Any) -> Iterator[QueuedDevice]:
    made = QueuedDevice(cp)
    driver.install(cp, made)
    yield made
    driver.install(cp, None)
    gc.collect()  # what programs have recorded is theirs
    assert not cp.machine.mistakes


def on_device(values: Any, **options: Any) -> Any:
    return torch.tensor(values, device="cuda", **options)


def vectors(*shape: int, seed: int = 0, **options: Any) -> Any:
    return on_device(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), **options)


def raised(function: Callable[..., Any], *arguments: Any) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:
        function(*arguments)
    return type(caught.value), str(caught.value)


def program_of(compiled: Any) -> DeviceProgram:
    (program,) = compiled.programs
    assert isinstance(program.executable.call, DeviceProgram)  # kernels of our own, not op by op
    return program.executable.call


def warmed(function: Callable[..., Any], *arguments: Any, times: int = 3, **options: Any) -> Any:
    """Compiled, as one program that the dispatcher launches by itself."""
    compiled = dg.compile(function, **options)
    for _ in range(times):
        compiled(*arguments)
    stats = compiled.stats
    assert stats.hits and not stats.breaks and not stats.fallbacks and not stats.refusals, (dict(stats.breaks), stats.last_error)
    return compiled


# -- what is found, and what is left as it was -----------------------------------------------------------------------------------

FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], Any]] = {  # arguments, then a last one that is wrong
    "x[places]": (lambda x, k: x[k], lambda: (vectors(4, 3), on_device([0, -4, 3])), [0, 4, -5]),
    "embedding": (lambda w, k: F.embedding(k, w) * 2, lambda: (vectors(5, 3), on_device([[0, 4]])), [[0, 5]]),
    "cross_entropy": (F.cross_entropy, lambda: (vectors(3, 4), on_device([0, 3, 1])), [0, 4, 1]),
    "binary_cross_entropy": (
        lambda x, t: F.binary_cross_entropy(torch.sigmoid(x), t), lambda: (vectors(3), on_device([0.0, 1.0, 0.5])), [0.0, 1.5, 0.5],
    ),
    "gather": (lambda x, k: torch.gather(x, 1, k).sum(0), lambda: (vectors(2, 3), on_device([[0, 2], [1, 1]])), [[0, 2], [3, 1]]),
    "index_add": (
        lambda x, k: x.index_add(0, k, torch.ones(2, 3, device="cuda")), lambda: (vectors(4, 3), on_device([1, 3])), [1, 4],
    ),
    "one_hot": (lambda k: F.one_hot(k, 4), lambda: (on_device([0, 3]),), [0, -1]),
    "two checks": (lambda x, k: x[k] + F.one_hot(k, 4).sum(), lambda: (vectors(3, 3), on_device([0, 2])), [0, 3]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("offset", [0, 1], ids=["by the dispatcher", "by Python"])
def test_what_the_plain_call_raises(device: QueuedDevice, name: str, offset: int) -> None:
    function, make, wrong = FUNCTIONS[name]

    def placed(t: Any) -> Any:
        """Memory that begins at no multiple of 16 is left to Python."""
        return torch.cat([t.reshape(-1)[:1]] * offset + [t.reshape(-1)])[offset:].reshape(t.shape)

    arguments = tuple(map(placed, make()))
    compiled = warmed(function, *arguments)
    want = raised(function, *arguments[:-1], placed(on_device(wrong)))
    for _ in range(2):
        assert raised(compiled, *arguments[:-1], placed(on_device(wrong))) == want
        got, plain = compiled(*arguments), function(*arguments)
        np.testing.assert_allclose(got.cpu().numpy(), plain.cpu().numpy(), rtol=1e-6)
    assert program_of(compiled).checks is not None and compiled.stats.refusals == 2 and not compiled.stats.fallbacks


@pytest.mark.parametrize(("where", "n", "most"), [("cpu", 20, 32), ("cuda", 6, 1)])
def test_many_checks_are_as_many_as_programs_have(device: QueuedDevice, where: str, n: int, most: int) -> None:
    """What is followed once for operands that are alike is checked for each of them."""

    def total(x: Any, *places: Any) -> Any:
        return sum(torch.index_select(x, 0, k).sum() for k in places)

    x, places = torch.tensor([1.0, 2.0, 4.0], device=where), [torch.tensor([0, 2], device=where) for _ in range(n)]
    compiled = warmed(total, x, *places, backend="numpy")  # of arrays of NumPy's
    (program,) = compiled.programs
    assert program.graph.n_checks == most
    for k in (places[0], places[n // 2], places[-1]):
        k[1] = 3
        assert raised(compiled, x, *places) == raised(total, x, *places)
        k[1] = 2
    assert compiled(x, *places).item() == 5 * n and compiled.stats.refusals == 3 and not compiled.stats.fallbacks


def test_draws_go_on_where_the_plain_call_stops(device: QueuedDevice) -> None:
    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(F.dropout(x, 0.5), y)

    x, right, wrong = vectors(3, 4), on_device([0, 1, 2]), on_device([0, 1, 4])
    compiled = warmed(loss, x, right)
    found = []
    for function in (loss, compiled):
        torch.manual_seed(3)
        found.append([function(x, right).item(), raised(function, x, wrong), function(x, right).item()])
    assert found[0] == found[1]


def step(w: Any, b: Any, x: Any, y: Any) -> Any:
    """A training step, whose updates are in place."""
    loss = F.cross_entropy(x * w + b, y)
    loss.backward()
    with torch.no_grad():
        for p in (w, b):
            p -= 0.1 * p.grad
            p.grad = None
    return loss.detach()


def of_step() -> tuple[Any, ...]:
    return vectors(4, requires_grad=True), vectors(4, requires_grad=True), vectors(6, 4, seed=1), on_device([0, 1, 2, 3, 0, 1])


WRONG = [0, 1, 2, 4, 0, 1]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_step_whose_target_is_wrong_changes_no_parameter(device: QueuedDevice, mode: str) -> None:
    (w, b, x, y), wrong = of_step(), on_device(WRONG)
    compiled = warmed(step, w, b, x, y, mode=mode, times=6)
    want = raised(step, *of_step()[:3], wrong)
    before = [p.detach().cpu().numpy().copy() for p in (w, b)]
    for _ in range(4):  # with CUDA graphs: launched, recorded, replayed
        assert raised(compiled, w, b, x, wrong) == want
    for p, earlier in zip((w, b), before):
        assert np.array_equal(p.detach().cpu().numpy(), earlier) and p.grad is None
    y.copy_(wrong)  # the same memory, of which a graph has been recorded
    assert raised(compiled, w, b, x, y) == want
    y.copy_(on_device([0, 1, 2, 3, 0, 1]))
    expected = [p.detach().clone().requires_grad_() for p in (w, b)]
    np.testing.assert_allclose(compiled(w, b, x, y).item(), step(*expected, x, y).item(), rtol=1e-5)
    for p, plain in zip((w, b), expected):
        np.testing.assert_allclose(p.detach().cpu().numpy(), plain.detach().cpu().numpy(), rtol=1e-5)
    assert not compiled.stats.fallbacks


def test_steps_are_replayed_as_graphs_around_the_check(device: QueuedDevice) -> None:
    arguments = of_step()
    compiled = warmed(step, *arguments, mode="reduce-overhead", times=4)
    replayer = program_of(compiled).replayer
    assert replayer is not None and replayer.failure is None and replayer.replays
    launches, graphs = device.launches, device.machine.graph_launches
    compiled(*arguments)
    assert device.launches == launches and device.machine.graph_launches - graphs in (2, 3)


def test_a_handler_that_raises_behind_the_last_graph_has_nothing_written_twice(
    device: QueuedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, others = of_step(), of_step()
    compiled = warmed(step, *arguments, mode="reduce-overhead", times=4)
    take, sent = Recording.take, []

    def take_and_send(self: Recording, inputs: Any) -> Any:
        launches, *results = take(self, inputs) or [()]
        sent.append(len(launches))
        return [(*launches, functools.partial(ctypes.pythonapi["raise"], signal.SIGUSR1)), *results]  # C alone: seen afterwards

    def handle(*_: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(Recording, "take", take_and_send)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(TimeoutError):
            compiled(*arguments)
    finally:
        signal.signal(signal.SIGUSR1, before)
    for _ in range(5):
        step(*others)
    assert len(sent) == 1 and sent[0] >= 4  # graphs, and what is done with the check in between
    np.testing.assert_allclose(arguments[0].detach().cpu().numpy(), others[0].detach().cpu().numpy(), rtol=1e-4)


# -- when the host waits --------------------------------------------------------------------------------------------------------


def test_the_host_waits_behind_the_launches_that_write_nothing(device: QueuedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """It launches all of forward and backward first; what is done then is the check, and the rest is still queued."""
    seen, settle, queue = [], Checks.settle, device.machine.queues[0]

    def settled(self: Checks, address: int) -> None:
        before = device.launches, len(queue.work)
        settle(self, address)
        seen.append((*before, len(queue.work)))

    monkeypatch.setattr(Checks, "settle", settled)
    compiled = warmed(step, *(arguments := of_step()))
    queue.run()
    start = device.launches
    compiled(*arguments)
    launched, queued, left = seen[-1]
    of_check, updates = queued - left - 2, device.launches - launched  # a copy and an event go with the kernels of the check
    assert 0 < of_check < launched - start == queued - 2 and updates > 0


def test_programs_without_such_values_ask_for_nothing(device: QueuedDevice) -> None:
    compiled = warmed(lambda x: (x * 2).sum(), vectors(7))
    copies = len(device.machine.copies)
    compiled(vectors(7))
    assert program_of(compiled).checks is None
    assert len([c for c in device.machine.copies[copies:] if c[1] == "cpu"]) == 0


def test_constants_that_are_right_are_not_checked(device: QueuedDevice) -> None:
    compiled = warmed(lambda x: x[[1, 0]], vectors(3, 2))
    assert program_of(compiled).checks is None


def test_places_of_cupys_arrays_are_taken_as_cupy_takes_them(cp: Any, device: QueuedDevice) -> None:
    compiled = dg.compile(lambda x, k: x[k] * 2)
    for _ in range(2):
        got = compiled(stand_in.laid(np.arange(4.0)), stand_in.laid(np.array([1, 5])))
    assert got.get().tolist() == [2, 2] and program_of(compiled).checks is None


def test_a_scaled_step_is_one_program_and_left_out_where_a_gradient_is_infinite(device: QueuedDevice) -> None:
    def run(compile: Any, where: str) -> Any:
        w = torch.ones(3, device=where, requires_grad=True)
        optimizer, scaler = torch.optim.SGD([w], lr=0.1), torch.amp.GradScaler(where, init_scale=4.0)

        def step(x: Any) -> None:
            optimizer.zero_grad()
            scaler.scale((w * x).sum()).backward()
            scaler.step(optimizer)
            scaler.update()

        compiled = compile(step)
        for turn in range(5):
            compiled(torch.tensor([1.0, float("inf") if turn == 3 else 2.0, 3.0], device=where))
        return compiled, w.detach().cpu(), scaler.get_scale()

    compiled, got, scale = run(torch.compile, "cuda")
    _, want, plain = run(lambda f: f, "cpu")
    assert torch.equal(got, want) and scale == plain == 2
    assert not compiled.stats.breaks and not compiled.stats.fallbacks and compiled.stats.refusals == 1


# -- what goes wrong otherwise --------------------------------------------------------------------------------------------------


def test_op_by_op(cp: Any) -> None:
    """Without a driver: the stand-in's functions."""
    (w, b, x, y), wrong = of_step(), on_device(WRONG)
    compiled = warmed(step, w, b, x, y)
    want, before = raised(step, *of_step()[:3], wrong), w.detach().cpu().numpy().copy()
    assert raised(compiled, w, b, x, wrong) == want
    assert np.array_equal(w.detach().cpu().numpy(), before) and w.grad is None


def test_without_page_locked_memory_the_call_runs_plainly(device: QueuedDevice) -> None:
    x, places = vectors(4, 3), on_device([0, 3])
    compiled = warmed(lambda x, k: x[k], x, places)
    device.machine.page_locked = 0
    assert torch.equal(compiled(x, places).cpu(), x[places].cpu()) and compiled.stats.refusals == 1


def test_checked_kernels_with_checks_of_values(device: QueuedDevice) -> None:
    x, places = vectors(4, 3), on_device([0, 3])
    with dg.config.override(cuda_check=True):
        compiled = torch.compile(lambda x, k: x[k])
        assert torch.equal(compiled(x, places).cpu(), x[places].cpu())
        assert program_of(compiled).checked and raised(compiled, x, on_device([0, 4])) == raised(lambda k: x[k], on_device([0, 4]))


def test_the_programs_error_names_the_function(device: QueuedDevice) -> None:
    def taken(x: Any, k: Any) -> Any:
        return x[k]

    x, places = vectors(4, 3), on_device([0, 3])
    program = program_of(warmed(taken, x, places))
    given = {"x__array": x._array, "k__array": on_device([0, 4])._array}
    with pytest.raises(CheckFailedError, match="taken: an index, or another value, is one for which the plain function raises"):
        program(*(given[node.target] for node in program.graph.placeholders))


def test_a_signal_while_the_host_waits(device: QueuedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler calls the same program, which asks for a check of its own."""
    x, places, wrong = vectors(4, 3), on_device([0, 3]), on_device([0, 4])
    compiled = warmed(lambda x, k: x[k], x, places)
    inner: list[Any] = []

    class Event(device.machine.cuda.Event):  # type: ignore[misc,name-defined]
        def synchronize(self) -> None:
            if not inner:
                inner.append(None)
                signal.raise_signal(signal.SIGUSR1)
            super().synchronize()

    def handle(*_: Any) -> None:
        inner[:] = [compiled(x, places).tolist()]

    monkeypatch.setattr(device.machine.cuda, "Event", Event)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        assert raised(compiled, x, wrong)[0] is IndexError
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert inner == [x[places].tolist()]


# -- later ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def later(device: QueuedDevice) -> Iterator[QueuedDevice]:
    with dg.config.override(cuda_errors="later"):
        yield device
    device.machine.queues[0].run()
    late_errors._waiting.clear()


TEXT = "an earlier call was given an index, or another value, for which the function raises an error"


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_later_call_raises(later: QueuedDevice, mode: str) -> None:
    w, b, x, y = of_step()
    compiled = warmed(step, w, b, x, y, mode=mode, times=6)
    dg.cuda.synchronize()
    compiled(w, b, x, on_device(WRONG))  # is back before the device has looked
    later.machine.queues[0].run()
    before = w.detach().cpu().numpy().copy()
    with pytest.raises(dg.CudaError, match=f"step: {TEXT}.* DYNAGRAPH_CUDA_ERRORS=now"):
        compiled(w, b, x, y)
    assert np.array_equal(w.detach().cpu().numpy(), before)  # that call has written nothing
    compiled(w, b, x, y)
    dg.cuda.synchronize()


@pytest.mark.parametrize("wait", ["device", "stream", "event", "torch"])
def test_who_waits_for_the_device_is_told(later: QueuedDevice, wait: str) -> None:
    x = vectors(4, 3)
    compiled = warmed(lambda x, k: x[k], x, on_device([0, 3]))
    dg.cuda.synchronize()
    got = compiled(x, on_device([0, 5]))
    event = dg.cuda.current_stream().record()
    waits = {
        "device": dg.cuda.synchronize, "stream": dg.cuda.current_stream().synchronize, "event": event.synchronize,
        "torch": torch.cuda.synchronize,
    }  # fmt: skip
    with pytest.raises(dg.CudaError, match=TEXT):
        waits[wait]()
    assert torch.equal(got.cpu(), x[[0, 1]].cpu())  # modulo the size: within the memory
    waits[wait]()  # once


def test_the_host_does_not_run_ahead_without_end(later: QueuedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_errors, "MOST", 3)
    x, places = vectors(4, 3), on_device([0, 3])
    compiled = warmed(lambda x, k: x[k], x, places)
    for _ in range(20):
        compiled(x, places)
        assert len(late_errors._waiting) <= 3
    compiled(x, on_device([4, 0]))
    with pytest.raises(dg.CudaError, match=TEXT):
        for _ in range(4):
            compiled(x, places)


def test_the_switch_is_checked() -> None:
    with pytest.raises(dg.ConfigError, match="expected one of now, later"), dg.config.override(cuda_errors="never"):
        pass


@pytest.mark.parametrize("when", ["now", "later"])
def test_warnings_are_given_in_the_call_that_they_are_about(device: QueuedDevice, when: str) -> None:
    """Not as an error in a later one."""

    def made(df: Any, factor: Any) -> Any:
        return torch.distributions.Wishart(df, scale_tril=factor, validate_args=False).df * 2

    factor = torch.eye(2, device="cuda")
    with dg.config.override(cuda_errors=when):
        compiled = torch.compile(made)
        for df in (3.0, 1.5, 3.0):
            given = torch.tensor(df, device="cuda")
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                assert compiled(given, factor).item() == 2 * df
            assert [str(w.message)[:23] for w in heard] == ["Low df values detected."] * (df < 2)
        dg.cuda.synchronize()
