"""Modules that run at the same time, each with its inputs: a thread for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from dynagraph.torch.amp.autocast_mode import autocast, get_autocast_dtype, is_autocast_enabled
from dynagraph.torch.core import devices as all_devices
from dynagraph.torch.core.grad_mode import is_grad_enabled, set_grad_enabled
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.failures import Failure
from dynagraph.torch.nn.parallel.scatter_gather import device_of


def get_a_var(obj: Any) -> Tensor | None:
    """The first tensor in a nested structure."""
    if isinstance(obj, Tensor):
        return obj
    parts = obj if isinstance(obj, (list, tuple)) else obj.items() if isinstance(obj, dict) else ()
    return next((found for found in map(get_a_var, parts) if found is not None), None)


def parallel_apply(
    modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:  # fmt: skip
    """Call each module with its inputs, a tuple or list of them or one, on its device (None: where its inputs are)."""
    for given, name in ((inputs, "inputs"), (kwargs_tup, "kwargs_tup"), (devices, "devices")):
        if given is not None and len(modules) != len(given):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to the number of {name} {len(given)}"
            )  # fmt: skip
    named = kwargs_tup or [{}] * len(modules)
    places = [_place(given, None if devices is None else devices[k]) for k, given in enumerate(inputs)]
    modes = [(kind, is_autocast_enabled(kind), get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    records = is_grad_enabled()
    results: list[Any] = [None] * len(modules)

    def run(k: int) -> None:
        given = inputs[k] if isinstance(inputs[k], (list, tuple)) else (inputs[k],)
        try:
            with ExitStack() as stack:
                stack.enter_context(set_grad_enabled(records))
                stack.enter_context(all_devices.scope(places[k]))
                for kind, enabled, dtype in modes:
                    if enabled:
                        stack.enter_context(autocast(kind, dtype=dtype))
                results[k] = modules[k](*given, **named[k])
        except Exception:
            results[k] = Failure(f"in replica {k} on device {places[k]}")

    _all_at_once(run, len(modules))
    for result in results:
        if isinstance(result, Failure):
            result.reraise()
    return results


def _place(given: Any, device: Any) -> all_devices.device:
    if device is not None:
        return device_of(device)
    tensor = get_a_var(given)
    return all_devices.CPU if tensor is None else tensor.device


def _all_at_once(run: Callable[[int], None], n: int) -> None:
    if n == 1:
        run(0)
        return
    threads = [threading.Thread(target=run, args=(k,), name=f"replica {k}") for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


__all__ = ["get_a_var", "parallel_apply"]
