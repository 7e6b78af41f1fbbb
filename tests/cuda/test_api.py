"""`dg.cuda`: what is there, devices, streams, events, memory, forks; on CuPy where there is a device, else on the stand-in."""

from __future__ import annotations

import builtins
import dataclasses
import gc
import subprocess
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.cuda import state, streams
from tests.cupy_arrays import stand_in, stand_in_cuda
from tests.cupy_arrays.stand_in import NAMES

NEEDS_A_DEVICE: dict[str, Callable[[], Any]] = {
    "current_device": lambda: dg.cuda.current_device(),
    "device": lambda: dg.cuda.device(0),
    "Stream": lambda: dg.cuda.Stream(),
    "Event": lambda: dg.cuda.Event(),
    "current_stream": lambda: dg.cuda.current_stream(),
    "synchronize": lambda: dg.cuda.synchronize(),
    "memory_allocated": lambda: dg.cuda.memory_allocated(),
    "memory_reserved": lambda: dg.cuda.memory_reserved(),
    "max_memory_allocated": lambda: dg.cuda.max_memory_allocated(),
    "reset_peak_memory_stats": lambda: dg.cuda.reset_peak_memory_stats(),
    "empty_cache": lambda: dg.cuda.empty_cache(),
    "get_device_properties": lambda: dg.cuda.get_device_properties(),
    "to_device": lambda: dg.to_device(np.ones(3)),
    "pinned_empty": lambda: dg.pinned_empty(3),
}


def in_thread(function: Callable[[], Any]) -> Any:
    """What a function gives in another thread."""
    given: list[Any] = []
    thread = threading.Thread(target=lambda: given.append(function()))
    thread.start()
    thread.join()
    return given[0]


# -- what there is -----------------------------------------------------------------------------------------------------


def test_importing_dynagraph_leaves_cupy_alone() -> None:
    script = "import sys, dynagraph; dynagraph.cuda.Stream, dynagraph.to_device; print('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("name", NEEDS_A_DEVICE)
def test_without_cupy_each_use_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(dg.CudaError, match=r'^CuPy is not installed: pip install "dynagraph\[cuda13\]".*`dynagraph doctor`'):
        NEEDS_A_DEVICE[name]()


def test_without_cupy_there_are_no_devices(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert not dg.cuda.is_available()
    assert dg.cuda.device_count() == 0
    x = np.ones(3)
    assert not dg.cuda.is_pinned(x) and dg.to_device(x, "cpu") is x
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "status, driver, text",
    [
        (35, 0, r"^there is no NVIDIA driver \(CuPy was built with CUDA 13\.2\): install the driver"),
        (35, 12040, r"^the NVIDIA driver is too old: it is of CUDA 12\.4, CuPy was built with CUDA 13\.2: update the driver"),
        (100, 13000, "^the driver sees no CUDA device: see what nvidia-smi lists, and whether CUDA_VISIBLE_DEVICES hides it"),
        (3, 13000, r'^CUDA could not be initialised: where this process was forked .*get_context\("spawn"\)'),
        (46, 13000, "^CUDA cannot be used: cudaError 46: install or update the driver"),
    ],
)
def test_what_is_missing_is_said(fake: Any, machine: Any, status: int, driver: int, text: str) -> None:
    machine.status, machine.driver = status, driver
    assert not dg.cuda.is_available()
    assert dg.cuda.device_count() == 0
    for use in NEEDS_A_DEVICE.values():
        with pytest.raises(dg.CudaError, match=text + ".*; `dynagraph doctor` shows what is there$") as caught:
            use()
        assert isinstance(caught.value, (dg.DynagraphError, RuntimeError))
        assert isinstance(caught.value.__cause__, fake.cuda.runtime.CUDARuntimeError)
    machine.status = 0
    assert dg.cuda.is_available()


def test_a_driver_without_devices(fake: Any, machine: Any) -> None:
    queues, machine.queues = machine.queues, []
    assert not dg.cuda.is_available()
    with pytest.raises(dg.CudaError, match=r"^the driver sees no CUDA device"):
        dg.cuda.current_device()
    machine.queues = queues


def import_with(monkeypatch: pytest.MonkeyPatch, importing: Callable[[], Any]) -> None:
    """``import cupy`` does this."""
    real = builtins.__import__
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(builtins, "__import__", lambda name, *more: importing() if name == "cupy" else real(name, *more))


@pytest.mark.parametrize(
    "error, text",
    [
        (
            ImportError("libnvrtc.so: no such file"),
            "^CuPy cannot be imported: ImportError: libnvrtc.so: no such file: install it anew",
        ),
        (
            ModuleNotFoundError("No module named 'fastrlock'", name="fastrlock"),
            "^CuPy cannot be imported: No module named 'fastrlock'",
        ),
        (AttributeError("partly"), "^CuPy cannot be imported: AttributeError: partly"),
    ],
)
def test_a_broken_cupy_is_no_missing_one(monkeypatch: pytest.MonkeyPatch, error: Exception, text: str) -> None:
    def importing() -> Any:
        raise error

    import_with(monkeypatch, importing)
    assert not dg.cuda.is_available()
    with pytest.raises(dg.CudaError, match=text) as caught:
        dg.cuda.Stream()
    assert caught.value.__cause__ is error


def test_asking_does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    module = stand_in.module()

    def importing() -> Any:
        warnings.warn("multiple CuPy packages are installed", UserWarning, stacklevel=2)
        monkeypatch.setitem(sys.modules, "cupy", module)
        return module

    import_with(monkeypatch, importing)
    assert dg.cuda.is_available()
    assert dg.cuda.device_count() == 2


def test_what_is_there(cp: Any) -> None:
    assert dg.cuda.is_available() is True
    assert dg.cuda.device_count() == cp.cuda.runtime.getDeviceCount()
    assert dg.cuda.current_device() == 0


def test_properties(cp: Any) -> None:
    found = dg.cuda.get_device_properties("cuda:0")
    assert found == dg.cuda.get_device_properties()
    assert found.name and found.major >= 5 and found.warp_size == 32 and found.max_threads_per_block == 1024
    assert found.total_memory > found.l2_cache_size > found.shared_memory_per_block_optin >= found.shared_memory_per_block >= 49152
    assert found.multi_processor_count > 0 and found.max_threads_per_multi_processor >= 1024 and found.memory_bus_width > 0
    assert found.registers_per_multi_processor >= 1 << 15 and found.clock_rate >= 0 and found.memory_clock_rate >= 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.name = "another"  # type: ignore[misc]


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_the_stand_in_has_no_names_but_cupys() -> None:
    cuda = stand_in.module().cuda
    assert public(cuda) <= set(NAMES["cuda"]["cuda"].split())
    assert public(cuda.runtime) <= set(NAMES["cuda"]["runtime"].split())
    for name in ("Device", "Stream", "Event", "MemoryHook"):
        assert public(getattr(cuda, name)) <= set(NAMES["cuda"][name].split()), name
    assert public(stand_in_cuda.MemoryPointer) <= set(NAMES["cuda"]["MemoryPointer"].split())


# -- devices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [1, np.int64(1), "cuda:1"])
def test_devices_nest_and_come_back(two: Any, name: Any) -> None:
    other = dg.cuda.device(name)
    assert other.index == 1 and repr(other) == "device('cuda:1')"
    with other as entered:
        assert entered is other
        assert dg.cuda.current_device() == two.cuda.runtime.getDevice() == 1
        with dg.cuda.device(0):
            assert dg.cuda.current_device() == 0
            with other, other:
                assert dg.cuda.current_device() == 1
            assert dg.cuda.current_device() == 0
        assert dg.cuda.current_device() == 1
        assert in_thread(dg.cuda.current_device) == 0
        with dg.cuda.device("cuda"):
            assert dg.cuda.current_device() == 1
    assert dg.cuda.current_device() == 0


def test_cupys_devices_are_devices(two: Any) -> None:
    with dg.cuda.device(two.cuda.Device(1)):
        assert two.zeros(3).device.id == 1


def test_a_device_comes_back_after_an_error(two: Any) -> None:
    with pytest.raises(KeyError), dg.cuda.device(1):
        two.cuda.runtime.setDevice(0)
        two.cuda.runtime.setDevice(1)
        raise KeyError
    assert dg.cuda.current_device() == 0


def test_one_device_is_enough_for_a_block(cp: Any) -> None:
    with pytest.raises(KeyError), dg.cuda.device(0), dg.cuda.device("cuda:0"):
        assert dg.cuda.current_device() == 0
        raise KeyError


def test_a_device_that_cannot_be_entered_leaves_the_one_before(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    block = dg.cuda.device(1)

    def full(device: int) -> None:
        machine.check(2)

    with monkeypatch.context() as patch:
        patch.setattr(machine.cuda.runtime, "setDevice", full)
        with pytest.raises(RuntimeError, match=r"cudaErrorMemoryAllocation"), block:
            pass
    with block:
        assert dg.cuda.current_device() == 1


@pytest.mark.parametrize(
    "device, error, text",
    [
        ("gpu", ValueError, "^device 'gpu': expected 'cuda', 'cuda:0', 'cuda:1'..., or a number"),
        ("cuda:", ValueError, "^device 'cuda:': expected"),
        ("cuda:-1", ValueError, "^device 'cuda:-1': expected"),
        ("cpu", ValueError, "^device 'cpu': expected"),
        (1.0, TypeError, "^device 1.0: expected a name like 'cuda:0' or a number, got float"),
        (True, TypeError, "^device True: expected a name like 'cuda:0' or a number, got bool"),
        (-1, dg.CudaError, r"^device -1: there is no such device; this process sees \d+ devices?, cuda:0"),
        (99, dg.CudaError, "^device 99: there is no such device"),
        ("cuda:99", dg.CudaError, "^device 'cuda:99': there is no such device"),
    ],
)
def test_wrong_devices_are_explained(cp: Any, device: Any, error: type[Exception], text: str) -> None:
    uses = (
        dg.cuda.device, dg.cuda.synchronize, dg.cuda.current_stream, dg.cuda.memory_allocated, dg.cuda.max_memory_allocated,
        dg.cuda.get_device_properties, lambda d: dg.cuda.Stream(device=d), dg.cuda.empty_cache,
    )  # fmt: skip
    for use in uses:
        with pytest.raises(error, match=text):
            use(device)


def test_names_are_read_before_cupy_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ValueError, match=r"^device 'gpu'"):
        dg.cuda.device("gpu")


def test_how_many_devices_there_are_is_said(machine: Any) -> None:
    with pytest.raises(dg.CudaError, match=r"^device 2: there is no such device; this process sees 2 devices, cuda:0 to cuda:1$"):
        dg.cuda.device(2)


def test_arrays_of_one_device(two: Any) -> None:
    x = two.zeros(3)
    with dg.cuda.device(1):
        y = two.zeros(3)
    assert dg.cuda.check_same_device([x, 2.0, x], "add") == 0
    assert dg.cuda.check_same_device([None, y], "add") == 1
    assert dg.cuda.check_same_device([np.ones(2), np.ones(3)], "add") == -1
    assert dg.cuda.check_same_device([1, "a"], "add") is None
    both = r"^add: array 0 is on cuda:0, array 2 on cuda:1; move one with dg.to_device\(x, 'cuda:0'\)$"
    with pytest.raises(dg.CudaError, match=both):
        dg.cuda.check_same_device([x, 2.0, y], "add")
    with pytest.raises(
        dg.CudaError, match=r"^add: array 0 is on cpu, array 1 on cuda:1; move one with dg.to_device\(x, 'cuda:1'\)$"
    ):
        dg.cuda.check_same_device([np.ones(3), y], "add")


def test_arguments_in_the_wrong_place_are_said(cp: Any) -> None:
    """Where they would be taken for others."""
    with pytest.raises(TypeError, match=r"^Stream: non_blocking='cuda:1': expected True or False; name the other arguments"):
        dg.cuda.Stream("cuda:1")  # type: ignore[arg-type]
    stream = dg.cuda.Stream()
    with pytest.raises(TypeError, match=r"^to_device: non_blocking=<Stream .*>: expected True or False; name the other"):
        dg.to_device(np.ones(3), "cuda", stream)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^check_same_device: expected a list of arrays and the operation's name, got ndarray"):
        dg.cuda.check_same_device(np.ones(2), np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^to_device: device 'gpu': expected 'cuda', .*, or a number, or 'cpu'$"):
        dg.to_device(np.ones(3), "gpu")


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_is_cupys_current_one_in_its_block(cp: Any) -> None:
    stream, inner = dg.cuda.Stream(), dg.cuda.Stream(non_blocking=False)
    assert stream.cupy_stream.is_non_blocking and not inner.cupy_stream.is_non_blocking
    outside = dg.cuda.current_stream()
    with stream as entered:
        assert entered is stream is dg.cuda.current_stream()
        assert cp.cuda.get_current_stream() is stream.cupy_stream
        with inner, stream, inner:
            assert dg.cuda.current_stream() is inner
        assert dg.cuda.current_stream() is stream
        assert in_thread(dg.cuda.current_stream) == outside
    assert dg.cuda.current_stream() == outside != stream
    with pytest.raises(KeyError), stream:
        raise KeyError
    assert dg.cuda.current_stream() == outside
    assert {stream: 1, inner: 2}[stream] == 1 and stream != 3
    assert repr(stream).startswith("<Stream 0x") and repr(stream).endswith(" of cuda:0>")


def test_work_of_a_stream(cp: Any) -> None:
    stream = dg.cuda.Stream()
    with stream:
        x = cp.arange(1000.0) * 2
        assert stream.record().query() in (True, False)
    stream.synchronize()
    assert stream.query()
    np.testing.assert_array_equal(dg.to_device(x, "cpu"), np.arange(1000.0) * 2)


def test_a_stream_of_another_device_makes_that_current(two: Any) -> None:
    stream = dg.cuda.Stream(device="cuda:1")
    assert stream.device == 1 and dg.cuda.current_device() == 0
    with stream:
        assert dg.cuda.current_device() == 1 and dg.cuda.current_stream() is stream
        assert two.zeros(3).device.id == 1
        with dg.cuda.device(0):
            assert dg.cuda.current_stream() != stream
            assert dg.cuda.current_stream(1) is stream
    with pytest.raises(KeyError), stream:
        two.cuda.runtime.setDevice(0)  # and not back
        raise KeyError
    assert dg.cuda.current_device() == 0
    stream.synchronize()
    assert stream.query() and stream.record().device == 1


def test_streams_wait_for_one_another(machine: Any) -> None:
    first, second, done = dg.cuda.Stream(), dg.cuda.Stream(device=1), []
    machine.streams[first.cupy_stream.ptr].work.append(lambda: done.append("first"))
    second.wait_stream(first)
    machine.streams[second.cupy_stream.ptr].work.append(lambda: done.append("second"))
    assert not first.query() and not second.query() and not done
    second.synchronize()
    assert done == ["first", "second"] and second.query()
    event = dg.cuda.Event()
    second.wait_event(event)  # never recorded
    first.wait_event(second.record(event))
    assert not first.query()
    first.synchronize()
    assert event.query() and second.query()


def test_devices_are_waited_for(machine: Any) -> None:
    done: list[int] = []
    for device in (0, 1):
        stream = dg.cuda.Stream(device=device)
        machine.streams[stream.cupy_stream.ptr].work.append(lambda device=device: done.append(device))
        with stream:
            dg.cuda.synchronize()
        assert done[-1] == device
    assert done == [0, 1]


def test_cupys_streams_are_streams(cp: Any) -> None:
    theirs = cp.cuda.Stream(non_blocking=True)
    with theirs:
        found = dg.cuda.current_stream()
    assert found.cupy_stream is theirs and found.device == 0
    ours = dg.cuda.Stream()
    ours.wait_stream(theirs)
    event = dg.cuda.Event()
    event.record(theirs)
    ours.synchronize(), event.synchronize()
    with found:
        assert cp.cuda.get_current_stream() is theirs
    with pytest.raises(dg.CudaError, match=r"was not made by dg.cuda.Stream, and is not closed by it"):
        found.close()
    with pytest.raises(TypeError, match=r"^stream: expected a dg.cuda.Stream, one of CuPy's, or None, got int"):
        ours.wait_stream(3)


def test_closed_streams_are_not_used(cp: Any) -> None:
    stream, event = dg.cuda.Stream(), dg.cuda.Event()
    stream.close()
    stream.close()
    uses: list[Callable[[], Any]] = [
        stream.__enter__, stream.synchronize, stream.query, stream.record, lambda: stream.wait_event(event),
        lambda: event.record(stream), lambda: dg.cuda.current_stream().wait_stream(stream), lambda: stream.cupy_stream,
        lambda: dg.to_device(np.ones(3), stream=stream),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(dg.CudaError, match=r"^<Stream 0x\w+ of cuda:0, closed> cannot be used any more: make another one"):
            use()
    assert stream == stream and stream != dg.cuda.Stream()


def test_a_current_stream_is_not_closed(cp: Any) -> None:
    stream = dg.cuda.Stream()
    entered, leave = threading.Event(), threading.Event()

    def elsewhere() -> None:
        with stream:
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    entered.wait(60)
    with pytest.raises(dg.CudaError, match=r"is current: leave its `with` block before closing it"):
        stream.close()
    leave.set()
    thread.join()
    with stream, stream, pytest.raises(dg.CudaError, match=r"is current"):
        stream.close()
    with stream.cupy_stream, pytest.raises(dg.CudaError, match=r"is current"):
        stream.close()
    stream.close()


def test_closing_waits_for_the_work(machine: Any) -> None:
    stream, done = dg.cuda.Stream(device=1), []
    number = stream.cupy_stream.ptr
    machine.streams[number].work.append(lambda: done.append(1))
    stream.close()
    assert done == [1] and number not in machine.streams


def test_a_stream_that_nobody_has_is_destroyed_after_its_work(machine: Any) -> None:
    stream, done = dg.cuda.Stream(), []
    number = stream.cupy_stream.ptr
    machine.streams[number].work.append(lambda: done.append(1))
    del stream
    gc.collect()
    dg.cuda.empty_cache()
    assert number in machine.streams and not done
    machine.streams[number].run()
    dg.cuda.empty_cache()
    assert number not in machine.streams and done == [1]
    idle = dg.cuda.Stream()
    number = idle.cupy_stream.ptr
    del idle
    dg.cuda.empty_cache()
    assert number not in machine.streams


def test_a_stream_in_a_cycle_is_destroyed_after_its_work(machine: Any) -> None:
    stream, done = dg.cuda.Stream(), []
    number = stream.cupy_stream.ptr
    machine.streams[number].work.append(lambda: done.append(1))
    cycle = [stream]
    cycle.append(cycle)
    del stream, cycle
    gc.collect()  # which ends all that it finds together
    assert number in machine.streams and not done
    machine.streams[number].run()
    dg.cuda.empty_cache()
    assert number not in machine.streams and done == [1] and not streams._owned


def test_a_stream_that_cannot_be_entered_stays_closable(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = dg.cuda.Stream(device=1)

    def broken(self: Any) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(machine.cuda.Stream, "__enter__", broken)
        with pytest.raises(RuntimeError, match=r"broken"), stream:
            pass
    assert dg.cuda.current_device() == 0
    stream.close()


# -- events ------------------------------------------------------------------------------------------------------------


def test_events_take_times(cp: Any) -> None:
    start, end = dg.cuda.Event(enable_timing=True), dg.cuda.Event(enable_timing=True)
    start.record()
    cp.ones(100_000).sum()
    end.record()
    end.synchronize()
    assert end.query() and start.query()
    assert 0 < start.elapsed_time(end) < 60_000


def test_events_are_reached_in_order(machine: Any) -> None:
    stream = dg.cuda.Stream()
    first, second = stream.record(), dg.cuda.Event()
    assert stream.record(second) is second
    assert not first.query() and not second.query()
    first.synchronize()
    assert first.query() and not second.query() and not stream.query()
    dg.cuda.Event().synchronize()
    assert dg.cuda.Event().query()


def test_events_that_have_no_times(cp: Any) -> None:
    timed, plain = dg.cuda.Event(enable_timing=True), dg.cuda.Event()
    with pytest.raises(dg.CudaError, match=r"^elapsed_time: the start event was not recorded"):
        timed.elapsed_time(timed)
    timed.record(), plain.record()
    timed.synchronize()
    with pytest.raises(
        dg.CudaError, match=r"^elapsed_time: the end event takes no times: make it with Event\(enable_timing=True\)"
    ):
        timed.elapsed_time(plain)
    with pytest.raises(dg.CudaError, match=r"^elapsed_time: the start event takes no times"):
        plain.elapsed_time(timed)


def test_events_that_are_not_reached_have_no_times(machine: Any) -> None:
    start, end = dg.cuda.Event(enable_timing=True), dg.cuda.Event(enable_timing=True)
    start.record(), end.record()
    start.synchronize()
    with pytest.raises(dg.CudaError, match=r"^elapsed_time: the end event is not reached yet: call end.synchronize\(\) first"):
        start.elapsed_time(end)


def test_events_belong_to_a_device(two: Any) -> None:
    event, other = dg.cuda.Event(enable_timing=True), dg.cuda.Event(enable_timing=True)
    event.record()
    with pytest.raises(dg.CudaError, match=r"^event of cuda:0: cannot be recorded on a stream of cuda:1; make one there"):
        event.record(dg.cuda.Stream(device=1))
    other.record(dg.cuda.Stream(device=1))
    event.synchronize(), other.synchronize()
    with pytest.raises(dg.CudaError, match=r"^elapsed_time: the start event is of cuda:0, the end event of cuda:1"):
        event.elapsed_time(other)


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_is_counted(cp: Any) -> None:
    before = dg.cuda.memory_allocated()
    x = cp.zeros(1 << 18, np.float32)
    assert dg.cuda.memory_allocated() == dg.cuda.memory_allocated("cuda:0") == before + (1 << 20)
    assert dg.cuda.memory_reserved() >= dg.cuda.memory_allocated()
    del x
    assert dg.cuda.memory_allocated() == before
    dg.cuda.empty_cache()
    assert dg.cuda.memory_reserved() <= before + (1 << 20)


def test_the_peak_is_kept(cp: Any) -> None:
    dg.cuda.reset_peak_memory_stats()
    before = dg.cuda.memory_allocated()
    assert dg.cuda.max_memory_allocated() == before
    x = cp.zeros(1 << 20, np.uint8)
    y = cp.zeros(1 << 20, np.uint8)
    del x
    z = cp.zeros(1 << 10, np.uint8)
    del y, z
    assert dg.cuda.memory_allocated() == before
    assert dg.cuda.max_memory_allocated() == before + (2 << 20)
    dg.cuda.reset_peak_memory_stats()
    assert dg.cuda.max_memory_allocated() == before


def test_the_peaks_of_devices_are_apart(two: Any) -> None:
    for device in (0, 1):
        dg.cuda.reset_peak_memory_stats(device)
    before = [dg.cuda.memory_allocated(device) for device in (0, 1)]
    with dg.cuda.device(1):
        two.zeros(1 << 20, np.uint8)
    assert dg.cuda.max_memory_allocated(0) == before[0]
    assert dg.cuda.max_memory_allocated(1) == before[1] + (1 << 20)


def test_what_other_threads_hold_is_in_the_peak(cp: Any) -> None:
    dg.cuda.reset_peak_memory_stats()
    before = dg.cuda.memory_allocated()
    held = in_thread(lambda: cp.zeros(1 << 20, np.uint8))
    cp.zeros(1 << 10, np.uint8)
    assert dg.cuda.max_memory_allocated() == before + (1 << 20) + (1 << 10)
    del held

    def asks_too() -> None:
        dg.cuda.max_memory_allocated()
        cp.zeros(4 << 20, np.uint8)

    in_thread(asks_too)
    assert dg.cuda.max_memory_allocated() == before + (4 << 20)


def test_threads_agree_on_the_peak(cp: Any) -> None:
    dg.cuda.reset_peak_memory_stats()
    before, together = dg.cuda.memory_allocated(), threading.Barrier(4)

    def work() -> None:
        dg.cuda.max_memory_allocated()
        for _ in range(20):
            x = cp.zeros(1 << 16, np.uint8)
            together.wait(60)
            del x
            together.wait(60)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dg.cuda.max_memory_allocated() == before + (4 << 16)


def test_a_failed_allocation_is_no_peak(fake: Any, machine: Any) -> None:
    dg.cuda.reset_peak_memory_stats()
    machine.memory[0] = 1 << 10
    with pytest.raises(MemoryError, match=r"^Out of memory allocating 1,048,576 bytes"):
        fake.zeros(1 << 20, np.uint8)
    assert dg.cuda.max_memory_allocated() == dg.cuda.memory_allocated() == 0


def test_the_pool_that_is_asked_is_the_one_in_use(fake: Any, machine: Any) -> None:
    own = stand_in_cuda.MemoryPool(machine)
    fake.cuda.set_allocator(own.malloc)
    x = dg.to_device(np.ones(100))
    assert dg.cuda.memory_allocated() == own.used_bytes() == 1024 and machine.pool.used_bytes() == 0
    fake.cuda.set_allocator(lambda size: own.malloc(size))
    assert dg.cuda.memory_allocated() == 0  # CuPy's default pool
    assert x.shape == (100,)


def test_emptying_gives_back(machine: Any) -> None:
    for device in (0, 1):
        machine.pool.total[device] = 4096
    dg.cuda.empty_cache(1)
    assert [dg.cuda.memory_reserved(device) for device in (0, 1)] == [4096, 0]
    assert machine.pinned_pool.emptied == 1


# -- forks -------------------------------------------------------------------------------------------------------------

FORK = """
import os, sys, numpy as np
import dynagraph as dg
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.conftest import real_cupy
{before}
read, write = os.pipe()
child = os.fork()
if child == 0:
    sys.stderr = os.fdopen(write, "w")
    {body}
    sys.stderr.flush()
    os._exit(0)
os.close(write)
print(open(read).read())
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
{after}
"""
INSTALL = "cupy = sys.modules['cupy'] = real_cupy() or stand_in.module()"
TRY = """
    for use in ({uses}):
        try:
            use()
        except dg.CudaError as error:
            print(error, file=sys.stderr)
"""


def forked(body: str, before: str = INSTALL, after: str = "") -> str:
    script = FORK.format(before=before, body=body.strip(), after=after)
    folder = Path(__file__).parents[2]
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=folder, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
    return found.stdout.strip()


def test_a_forked_child_is_told() -> None:
    uses = (
        "dg.cuda.current_device, stream.synchronize, event.query, dg.cuda.Stream, lambda: dg.to_device(np.ones(3)), stream.close,"
    )
    text = forked(
        TRY.format(uses=uses) + "\n    print(dg.cuda.is_available(), dg.cuda.device_count(), file=sys.stderr)",
        before=INSTALL + "\nstream, event = dg.cuda.Stream(), dg.cuda.Event(); event.record(stream)",
        after="stream.synchronize(); assert event.query() and dg.cuda.is_available()",
    )
    *messages, last = text.splitlines()
    assert last == "False 0" and len(messages) == 6
    for message in messages:
        assert message.startswith("CUDA was used by process ") and " before it forked process " in message
        assert 'start processes with multiprocessing.get_context("spawn")' in message


def test_a_child_leaves_blocks_and_loses_streams_in_peace() -> None:
    body = """
    stream = event = None
    block.__exit__(None, None, None)
    other.__exit__(None, None, None)
    print("quiet", file=sys.stderr)
    """
    before = INSTALL + (
        "\nstream, event = dg.cuda.Stream(), dg.cuda.Event(); event.record(stream)"
        "\nother = dg.cuda.device(0); other.__enter__(); block = dg.cuda.Stream(); block.__enter__()"
    )
    after = "block.__exit__(None, None, None); other.__exit__(None, None, None); stream.synchronize()"
    assert forked(body, before, after) == "quiet"


def test_a_fork_before_the_first_use_is_harmless() -> None:
    body = "print(dg.cuda.device_count(), dg.cuda.current_device(), dg.cuda.Stream().query(), file=sys.stderr)"
    before = "sys.modules['cupy'] = stand_in.module()"
    assert forked(body, before, "assert dg.cuda.is_available()") == "2 0 True"


def test_use_is_noted_once(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state.require_cupy() is fake
    monkeypatch.setattr(fake.cuda.runtime, "getDeviceCount", types.SimpleNamespace())
    assert state.require_cupy() is fake


def test_threads_keep_nothing_of_streams(fake: Any) -> None:
    def enter(stream: dg.cuda.Stream) -> weakref.ref[dg.cuda.Stream]:
        with stream:
            return weakref.ref(stream)

    gone = in_thread(lambda: enter(dg.cuda.Stream()))
    gc.collect()
    assert gone() is None
