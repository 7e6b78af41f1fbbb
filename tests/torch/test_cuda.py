"""``torch.cuda``: answers without a GPU, and with the stand-in for CuPy what its streams, events, memory and generators do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.torch.core import philox
from tests.cuda.conftest import fake  # noqa: F401  (a fixture)

without_gpu = pytest.mark.skipif(dg.cuda.is_available(), reason="there is a GPU")


@without_gpu
def test_answers_without_a_gpu() -> None:
    cuda = torch.cuda
    assert not cuda.is_available() and cuda.device_count() == 0 and not cuda.is_initialized()
    assert cuda.memory_allocated() == cuda.max_memory_allocated() == cuda.memory_reserved() == 0
    assert not cuda.is_bf16_supported() and cuda.get_arch_list() == [] and cuda.memory_stats() == {}
    cuda.manual_seed(1)
    cuda.manual_seed_all(1)
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    cuda.set_device(-1)
    with cuda.device(None), cuda.device(-1), cuda.stream(None), cuda.device_of(torch.ones(1)):
        assert torch.ones(1).device.type == "cpu"
    assert issubclass(cuda.OutOfMemoryError, RuntimeError) and cuda.default_generators == ()
    assert not isinstance(torch.ones(1), cuda.FloatTensor)


NEEDS: dict[str, Callable[[], Any]] = {
    "current_device": lambda: torch.cuda.current_device(),
    "set_device": lambda: torch.cuda.set_device(0),
    "device": lambda: torch.cuda.device(0),
    "synchronize": lambda: torch.cuda.synchronize(),
    "Stream": lambda: torch.cuda.Stream(),
    "Event": lambda: torch.cuda.Event(),
    "current_stream": lambda: torch.cuda.current_stream(),
    "get_device_name": lambda: torch.cuda.get_device_name(),
    "get_device_capability": lambda: torch.cuda.get_device_capability(),
    "get_rng_state": lambda: torch.cuda.get_rng_state(),
    "init": lambda: torch.cuda.init(),
    "cuda": lambda: torch.ones(1).cuda(),
    "zeros": lambda: torch.zeros(1, device="cuda"),
}


@without_gpu
@pytest.mark.parametrize("name", NEEDS)
def test_what_needs_a_gpu_says_what_is_missing(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"CuPy|driver|device"):
        NEEDS[name]()


def test_names_that_there_are_not() -> None:
    with pytest.raises(AttributeError, match=r"dynagraph\.torch has no torch\.cuda\.CUDAGraph"):
        torch.cuda.CUDAGraph  # noqa: B018
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        torch.cuda.device("cpu")


def test_the_host_by_the_same_names() -> None:
    cpu = torch.cpu
    assert cpu.is_available() and cpu.device_count() == 1 and cpu.current_device() == "cpu"
    cpu.synchronize()
    with cpu.stream(cpu.Stream()):
        assert cpu.current_stream().record_event().query()


def test_devices(fake: Any) -> None:  # noqa: F811
    cuda = torch.cuda
    assert cuda.is_available() and cuda.device_count() >= 2 and cuda.current_device() == 0
    with cuda.device(1) as nothing:
        assert nothing is None and cuda.current_device() == 1
    with cuda.device("cuda:1"), cuda.device(torch.device("cuda", 0)):
        assert cuda.current_device() == 0
    cuda.set_device("cuda:1")
    assert cuda.current_device() == 1
    cuda.set_device(0)
    found = cuda.get_device_properties(0)
    assert found.name == cuda.get_device_name() and (found.major, found.minor) == cuda.get_device_capability("cuda:0")
    assert found.total_memory > 0 and found.L2_cache_size > 0 and found.name in repr(found)
    assert cuda.get_arch_list()
    cuda.synchronize()


def test_streams_and_events(fake: Any) -> None:  # noqa: F811
    cuda = torch.cuda
    stream = cuda.Stream()
    assert stream.device == torch.device("cuda", 0) and stream != cuda.default_stream() == cuda.current_stream()
    with cuda.stream(stream) as entered:
        assert entered is stream and cuda.current_stream() == stream and cuda.current_stream().cuda_stream == stream.cuda_stream
        start = stream.record_event(cuda.Event(enable_timing=True))
        end = cuda.Event(enable_timing=True)
        end.record()
    end.wait(cuda.current_stream())
    cuda.current_stream().wait_stream(stream)
    stream.wait_event(end)
    stream.synchronize()
    end.synchronize()
    assert start.query() and stream.query() and start.elapsed_time(end) >= 0
    assert repr(cuda.Event()) == "<torch.cuda.Event uninitialized>" and "torch.cuda.Stream device=cuda:0" in repr(stream)
    torch.zeros(3, device="cuda").record_stream(stream)
    with pytest.raises(NotImplementedError, match="the tensor is on cpu"):
        torch.zeros(3).record_stream(stream)
    with pytest.raises(RuntimeError, match="events of other processes"):
        cuda.Event(interprocess=True)


def test_memory(fake: Any) -> None:  # noqa: F811
    cuda = torch.cuda
    cuda.reset_peak_memory_stats()
    before = cuda.memory_allocated()
    x = torch.zeros(1000, device="cuda")
    assert cuda.memory_allocated() >= before + 4000 and cuda.max_memory_allocated() >= cuda.memory_allocated() > 0
    assert cuda.memory_reserved() >= cuda.memory_allocated() and "allocated_bytes.all.current" in cuda.memory_summary()
    assert x.is_cuda and isinstance(x, cuda.FloatTensor) and not isinstance(x, torch.FloatTensor)
    del x
    cuda.empty_cache()


def test_page_locked_memory(fake: Any) -> None:  # noqa: F811
    x = torch.arange(6.0)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and pinned.untyped_storage().is_pinned() and torch.equal(pinned, x)
    assert pinned.pin_memory() is pinned
    made = (f(3, pin_memory=True) for f in (torch.zeros, torch.empty, torch.randn, torch.randperm, torch.arange))
    assert all(t.is_pinned() for t in (*made, torch.tensor([1], pin_memory=True), torch.randint(3, (2,), pin_memory=True)))
    on_gpu = pinned.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(on_gpu.cpu(), x) and not on_gpu.is_pinned()
    with pytest.raises(RuntimeError, match=r"cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"):
        on_gpu.pin_memory()


def test_generators_of_gpus_have_the_hosts_numbers(fake: Any) -> None:  # noqa: F811
    torch.manual_seed(5)
    on_host, on_gpu = torch.randn(7), torch.randn(7, device="cuda")
    assert on_gpu.is_cuda and np.array_equal(on_host.numpy(), on_gpu.cpu().numpy())
    state = torch.cuda.get_rng_state()
    x = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="cuda").cpu(), x.cpu())
    with torch.random.fork_rng():
        y = torch.rand(3, device="cuda:1")
    assert torch.equal(torch.rand(3, device="cuda:1").cpu(), y.cpu())
    assert torch.cuda.initial_seed() == 5 and len(torch.cuda.get_rng_state_all()) == torch.cuda.device_count()
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.rand(3, device="cuda", generator=torch.Generator())
    g = torch.Generator("cuda").manual_seed(3)
    drawn = torch.empty(5, device="cuda").bernoulli_(0.5, generator=g)
    assert np.array_equal(drawn.cpu().numpy() == 1, philox.mask(3, 0, (5,), 0.5))
    with torch.random.torch_compatible(True):
        torch.manual_seed(1)
        assert torch.rand(2, device="cuda").is_cuda


def test_legacy_constructors_on_gpus(fake: Any) -> None:  # noqa: F811
    x = torch.cuda.FloatTensor([1, 2])
    assert x.is_cuda and x.dtype is torch.float32 and x.cpu().tolist() == [1, 2]
    y = torch.ones(2, requires_grad=True)
    moved = y.type(torch.cuda.DoubleTensor)
    assert moved.is_cuda and moved.type() == "torch.cuda.DoubleTensor" and not moved.type("torch.FloatTensor").is_cuda
    moved.backward(torch.ones(2, dtype=torch.float64, device="cuda"))
    assert y.grad.tolist() == [1, 1] and not y.grad.is_cuda
