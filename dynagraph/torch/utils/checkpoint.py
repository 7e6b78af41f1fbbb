"""``torch.utils.checkpoint``: compute again in backward rather than keep."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.amp.autocast_mode import regions_now
from dynagraph.torch.autograd import backward
from dynagraph.torch.autograd.function import Function
from dynagraph.torch.autograd.graph import saved_tensors_hooks
from dynagraph.torch.core.arrays import as_if_new
from dynagraph.torch.core.engine import accumulates_all, run_number
from dynagraph.torch.core.generator import default_generator, generators_of_gpus
from dynagraph.torch.core.grad_mode import enable_grad, is_grad_enabled
from dynagraph.torch.core.nodes import SECOND_TIME
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.missing import getattr_of


class CheckpointError(RuntimeError):
    """The second computation was not what the first was."""


class _Stop(Exception):
    """All that is needed has been computed again."""


_settings = {"early_stop": None}


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Contexts for the first and for the second computation that do nothing."""
    return nullcontext(), nullcontext()


class set_checkpoint_early_stop:
    """A context that sets whether second computations stop when all that is needed has been computed."""

    def __init__(self, enable: bool):
        self.enable = enable
        self.before: Any = None

    def __enter__(self) -> None:
        self.before = _settings["early_stop"]
        _settings["early_stop"] = self.enable

    def __exit__(self, *_: Any) -> None:
        _settings["early_stop"] = self.before


class set_checkpoint_debug_enabled:
    """A context for errors with more about where they come from: these name the tensors in any case."""

    def __init__(self, enabled: bool | None):
        self.enabled = enabled

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


# -- random numbers ---------------------------------------------------------------------------------------------------


def _random_state() -> list[tuple[Any, Any]]:
    return [(g, g.place()) for g in (default_generator, *generators_of_gpus().values())]


class _random_as:
    """A context in which random numbers are drawn from an earlier state on."""

    def __init__(self, state: list[tuple[Any, Any]] | None):
        self.state = state

    def __enter__(self) -> None:
        if self.state is not None:
            self.before = _random_state()
            for generator, state in self.state:
                generator.go_to(state)

    def __exit__(self, *_: Any) -> None:
        if self.state is not None:
            for generator, state in self.before:
                generator.go_to(state)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The numbers of the GPUs that are used, and the states of their generators."""
    found = generators_of_gpus()
    return list(found), [g.get_state() for g in found.values()]


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Set the states of generators of GPUs."""
    found = generators_of_gpus()
    for number, state in zip(devices, states):
        found[number].set_state(state)


def _once_more(tensor: Tensor) -> Tensor:
    """A saved input for the second computation, which programs make indeed: they keep nothing of the first one for it."""
    if not is_compiling():
        return tensor
    made = wrap(as_if_new(tensor._array))
    return made.requires_grad_() if tensor.requires_grad else made


# -- with a backward of its own ---------------------------------------------------------------------------------------


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors without history, which require gradients as before."""
    if not isinstance(inputs, tuple):
        raise RuntimeError("Only tuple of tensors is supported. Got Unsupported input type: ", type(inputs).__name__)
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs: Any) -> None:
    """Warn where no input requires a gradient."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class CheckpointFunction(Function):
    """Runs a function without recording, and again, recorded, in backward."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.random, ctx.regions = _random_state() if preserve_rng_state else None, regions_now()
        ctx.inputs = [None if isinstance(x, Tensor) else x for x in args]
        ctx.places = [k for k, x in enumerate(args) if isinstance(x, Tensor)]
        ctx.save_for_backward(*(args[k] for k in ctx.places))
        return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        if not accumulates_all():
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to "
                ".backward(). To resolve this error, you can either set use_reentrant=False, or call .backward() without passing "
                "the `inputs` argument."
            )
        inputs = list(ctx.inputs)
        for k, tensor in zip(ctx.places, ctx.saved_tensors):
            inputs[k] = _once_more(tensor)
        given = detach_variable(tuple(inputs))
        with _random_as(ctx.random), ctx.regions[0], ctx.regions[1], enable_grad():
            outputs = ctx.run_function(*given)
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(x, g) for x, g in zip(several, args) if isinstance(x, Tensor) and x.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([x for x, _ in pairs], [g for _, g in pairs])
        return (None, None, *(x.grad if isinstance(x, Tensor) else None for x in given))


# -- with hooks on what is saved --------------------------------------------------------------------------------------


class _SaveInputs(Function):
    """Saves a function's inputs as an operation does: hooks on what is saved, of an outer checkpoint too, see them."""

    @staticmethod
    def forward(*tensors: Tensor) -> Tensor:
        return wrap(np.empty(0, np.float32))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.places = [k for k, x in enumerate(inputs) if k and isinstance(x, Tensor)]
        ctx.others = [None if isinstance(x, Tensor) else x for x in inputs]
        ctx.save_for_backward(*(inputs[k] for k in ctx.places))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError("Did not expect to backward on this graph")


class _Holder:
    """Stands for a saved tensor; holds it from the second computation in a backward until its node is done."""

    __slots__ = ("__weakref__", "run", "tensor")

    def __init__(self) -> None:
        self.run, self.tensor = -1, None


class _Frame:
    """One checkpointed call."""

    def __init__(self, fn: Callable[..., Any], kwargs: dict[str, Any], random: Any, context: Any, early_stop: bool, check: str):
        self.fn, self.kwargs, self.random, self.context = fn, kwargs, random, context
        self.regions = regions_now()
        self.early_stop, self.check = early_stop, check
        self.holders: list[weakref.ref[_Holder]] = []
        self.about: list[dict[str, Any]] = []
        self.saver: Any = None
        self.complete = False

    def pack(self, tensor: Tensor) -> _Holder:
        holder = _Holder()
        self.holders.append(weakref.ref(holder))
        self.about.append(_about(tensor))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        run = run_number()
        if holder.tensor is None or holder.run != run:
            self.compute(run)
        if holder.tensor is None:
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.holders)}\n"
                f"Number of tensors saved during recomputation: {self.found}."
            )
        return holder.tensor

    def compute(self, run: int) -> None:
        """Compute again, and give the holders what is saved."""
        ctx = self.saver.grad_fn.ctx
        if ctx._saved is None:
            raise RuntimeError(SECOND_TIME)
        inputs = list(ctx.others)
        for k, tensor in zip(ctx.places, ctx.saved_tensors):
            inputs[k] = _once_more(tensor)
        self.found = 0
        different = []

        def pack(tensor: Tensor) -> Tensor:
            k = self.found
            self.found += 1
            if k < len(self.holders):
                if self.check == "default" and _about(tensor) != self.about[k]:
                    different.append(
                        f"tensor at position {k}:\nsaved metadata: {self.about[k]}\nrecomputed metadata: {_about(tensor)}\n"
                    )
                holder = self.holders[k]()
                if holder is not None:
                    holder.run, holder.tensor = run, tensor.detach()
                if self.early_stop and self.found == len(self.holders):
                    raise _Stop
            return tensor.detach()

        try:
            cpu, cuda = self.regions
            with _random_as(self.random), cpu, cuda, self.context, saved_tensors_hooks(pack, lambda x: x), enable_grad():
                self.fn(*inputs[1:], **self.kwargs)
        except _Stop:
            pass
        if (not self.early_stop and self.found > len(self.holders)) or self.found < len(self.holders):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.holders)}\n"
                f"Number of tensors saved during recomputation: {self.found}."
            )
        if different:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the "
                f"forward pass.\n{''.join(different)}."
            )


def _about(tensor: Tensor) -> dict[str, Any]:
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]] = noop_context_fn,
    determinism_check: str = "default", debug: bool = False, early_stop: bool = True, **kwargs: Any,
) -> Any:  # fmt: skip
    """``function(*args, **kwargs)``, which keeps its inputs only: what its gradient reads is computed again in backward.

    `use_reentrant`: True runs a backward within backward, which `autograd.grad` cannot do; False is recommended.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, calling "
            "checkpoint without use_reentrant will raise an exception. use_reentrant=False is recommended, but if you need to "
            "preserve the current default behavior, you can pass use_reentrant=True. Refer to docs for more details on the "
            "differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    first, second = context_fn()
    random = _random_state() if preserve else None
    if not is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    stop = early_stop if _settings["early_stop"] is None else _settings["early_stop"]
    frame = _Frame(function, kwargs, random, second, stop, determinism_check)
    frame.saver = _SaveInputs.apply(wrap(np.empty(0, np.float32)).requires_grad_(), *args)
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """Apply functions, or a module's children, one after the other: in segments, each of which but the last is checkpointed."""
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly. In version "
            "2.9 we will raise an exception if use_reentrant is not passed. use_reentrant=False is recommended, but if you need "
            "to preserve the current default behavior, you can pass use_reentrant=True. Refer to docs for more details on the "
            "differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    parts = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def run_of(start: int, end: int) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for part in parts[start:end]:
                value = part(value)
            return value

        return run

    size = len(parts) // segments
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(run_of(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return run_of(end, len(parts))(input)


__getattr__ = getattr_of(__name__)
__all__ = [
    "CheckpointError", "CheckpointFunction", "check_backward_validity", "checkpoint", "checkpoint_sequential", "detach_variable",
    "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip
