"""Losses multiplied by a factor, so that gradients of halves do not vanish; the gradients are divided by it before a step."""

from __future__ import annotations

import inspect
import warnings
from collections import abc, defaultdict
from enum import Enum
from typing import Any

from dynagraph.cuda.state import is_available
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import none_is_set
from dynagraph.torch.core.devices import device as Device
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor, check_write, write
from dynagraph.torch.functions import arithmetic, comparisons, creation, ternary  # noqa: F401  (declare)
from dynagraph.torch.functions.common import NAMESPACES

_full, _where = NAMESPACES["torch"]["full"], NAMESPACES["torch"]["where"]


class OptState(Enum):
    """What was done with an optimizer since the last `update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


def _by_name(found: dict[Device, Tensor]) -> dict[str, Tensor]:
    """By the texts of devices: captured code follows dicts with such keys."""
    return {str(device): flag for device, flag in found.items()}


# -- the two steps that are functions of tensors ----------------------------------------------------------------------


def _amp_foreach_non_finite_check_and_unscale_(self: Any, found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply gradients by a factor; `found_inf` becomes 1 where one of them was infinite or NaN."""
    for gradient in self:
        check_write(gradient)
        finite = gradient.isfinite().all()
        write(gradient, (gradient.to(dtypes.float32) * inv_scale).to(gradient.dtype))
        write(found_inf, _where(finite, found_inf, found_inf * 0 + 1))


def _amp_update_scale_(
    self: Tensor, growth_tracker: Tensor, found_inf: Tensor, scale_growth_factor: float, scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:  # fmt: skip
    """Shrink the scale where something was infinite; let it grow after so many times that nothing was."""
    failed = found_inf != 0
    count = _where(failed, growth_tracker * 0, growth_tracker + 1)
    is_due = count == growth_interval
    grown = (self.double() * scale_growth_factor).float()
    grown = _where(is_due & grown.isfinite(), grown, self)
    write(growth_tracker, _where(is_due, count * 0, count).to(growth_tracker.dtype))
    return write(self, _where(failed, (self.double() * scale_backoff_factor).float(), grown))


# -- the scaler -------------------------------------------------------------------------------------------------------


class GradScaler:
    """Scales losses, and skips the steps of optimizers whose gradients are not finite.

    The factor begins at `init_scale`. It is multiplied by `growth_factor` after `growth_interval` steps that were not skipped, and
    by `backoff_factor` after one that was.  With ``enabled=False`` nothing is scaled, and `step` calls the optimizer's.

        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device, self._enabled = device, enabled
        if device == "cuda" and enabled and not is_available():
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            self._enabled = False
        if not self._enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale, self._init_growth_tracker = init_scale, 0
        self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
        self._scale: Tensor | None = None  # made with the first loss, on its device
        self._growth_tracker: Tensor | None = None
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_fresh_state)

    def _made(self, who: str) -> tuple[Tensor, Tensor]:
        """The scale and the count of steps; AssertionError before the first loss."""
        hint = "This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration."
        for name in ("_scale", "_growth_tracker"):
            if getattr(self, name) is None:
                raise AssertionError(f"Attempted {who} but {name} is None.  {hint}")
        return self._scale, self._growth_tracker  # type: ignore[return-value]

    def _scale_on(self, device: Device) -> Tensor:
        if self._scale is None:
            self._scale = _full((), self._init_scale, dtype=dtypes.float32, device=device)
            self._growth_tracker = _full((), self._init_growth_tracker, dtype=dtypes.int32, device=device)
        scale: Any = self._scale
        return scale.to(device)  # type: ignore[no-any-return]

    def scale(self, outputs: Any) -> Any:
        """A tensor, or the tensors of an iterable, multiplied by the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale_on(outputs.device)  # type: ignore[operator]
        if not isinstance(outputs, abc.Iterable):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled  # type: ignore[call-arg]

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Device, Tensor]:
        """Multiply an optimizer's gradients; for each device whether one was not finite."""
        found: dict[Device, Tensor] = {}
        gradients: dict[Device, list[Tensor]] = {}
        with no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if not isinstance(parameter, Tensor):
                        raise AssertionError(f"expected param to be torch.Tensor, got {type(parameter).__name__}")
                    gradient: Any = parameter.grad
                    if gradient is None:
                        continue
                    if not allow_fp16 and gradient.dtype is dtypes.float16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    if gradient.is_sparse:
                        if gradient.dtype is dtypes.float16:  # what is added up may overflow
                            gradient = parameter.grad = gradient.coalesce()
                        gradient = gradient._values()
                    gradients.setdefault(gradient.device, []).append(gradient)
            for device, those in gradients.items():
                found[device] = found_inf.to(device=device, copy=True)
                divided: list[Any] = [each for each in those if each._is_divided]
                own = [each.to_local() if each._is_divided else each for each in those]
                _amp_foreach_non_finite_check_and_unscale_(own, found[device], inv_scale.to(device))
                if divided:
                    found[device] = divided[0].greatest_over_ranks(divided, found[device])
        return found

    def unscale_(self, optimizer: Any) -> None:
        """Divide an optimizer's gradients by the factor: by itself only for those who look at them before `step`."""
        if not self._enabled:
            return
        scale: Any = self._made("unscale_")[0]
        about = self._per_optimizer_states[id(optimizer)]
        if about["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if about["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inverse = scale.double().reciprocal().float()
        about["found_inf_per_device"] = _by_name(self._unscale_grads_(optimizer, inverse, self._zero(scale), False))
        about["stage"] = OptState.UNSCALED

    def _zero(self, scale: Tensor) -> Any:
        return _full((), 0.0, dtype=dtypes.float32, device=scale.device)

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        found = [flag._array for flag in optimizer_state["found_inf_per_device"].values()]
        return optimizer.step(*args, **kwargs) if none_is_set(found) else None

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale the gradients, unless that was done, and call ``optimizer.step(...)`` if all are finite; gives what it gives."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._made("step")
        about = self._per_optimizer_states[id(optimizer)]
        if about["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._left_to_optimizer(optimizer, about, args, kwargs)
        else:
            if about["stage"] is OptState.READY:
                self.unscale_(optimizer)
            if not about["found_inf_per_device"]:
                raise AssertionError("No inf checks were recorded for this optimizer.")
            result = self._maybe_opt_step(optimizer, about, *args, **kwargs)
        about["stage"] = OptState.STEPPED
        return result

    def _left_to_optimizer(self, optimizer: Any, about: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The step of an optimizer that unscales by itself: by its attributes `grad_scale` and `found_inf`."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the near future "
                "GradScaler registers `grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer and let the optimizer "
                "use them directly.",
                FutureWarning,
                stacklevel=3,
            )
            return optimizer.step(*args, **kwargs, grad_scaler=self)
        if about["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        scale: Any = self._scale
        own = getattr(optimizer, "grad_scale", None)
        is_unscaled = about["stage"] is OptState.UNSCALED
        optimizer.grad_scale = own if is_unscaled else scale * (1 if own is None else own)
        optimizer.found_inf = sum(found.to(scale.device) for found in about["found_inf_per_device"].values())
        result = optimizer.step(*args, **kwargs)
        del optimizer.grad_scale, optimizer.found_inf
        return result

    def update(self, new_scale: Any = None) -> None:
        """Change the factor by whether steps were skipped, or set it; then optimizers may step again."""
        if not self._enabled:
            return
        scale: Any
        scale, count = self._made("update")
        if new_scale is None:
            found = [f.to(scale.device) for s in self._per_optimizer_states.values() for f in s["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            with no_grad():
                _amp_update_scale_(scale, count, sum(found), self._growth_factor, self._backoff_factor, self._growth_interval)
        elif isinstance(new_scale, float):
            scale.fill_(new_scale)
        else:
            if new_scale.device.type != self._device or new_scale.numel() != 1 or new_scale.requires_grad:
                raise AssertionError(
                    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
                    "requires_grad=False."
                )
            scale.copy_(new_scale)
        self._per_optimizer_states = defaultdict(_fresh_state)

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def get_scale(self) -> float:
        """The factor; 1 where scaling is off."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()  # type: ignore[attr-defined, no-any-return]

    def get_growth_factor(self) -> float:
        """What the factor is multiplied by after steps that were not skipped."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what the factor is multiplied by after steps that were not skipped."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the factor is multiplied by after a step that was skipped."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what the factor is multiplied by after a step that was skipped."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps in a row that were not skipped the factor grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many steps in a row that were not skipped the factor grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        tracker: Any = self._growth_tracker
        return self._init_growth_tracker if tracker is None else tracker.item()  # type: ignore[no-any-return]

    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The factor, how it changes, and the count of steps, as numbers; nothing where scaling is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker(),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` gave."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale, self._init_growth_tracker = state_dict["scale"], state_dict["_growth_tracker"]
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        scale: Any = self._scale
        tracker: Any = self._growth_tracker
        if scale is not None:
            scale.fill_(state_dict["scale"])
        if tracker is not None:
            tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                    "scaler.update()."
                )
            state |= {"_init_scale": self.get_scale(), "_init_growth_tracker": self._get_growth_tracker()}
            state |= {"_scale": None, "_growth_tracker": None}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _check_inf_per_device(self, optimizer: Any) -> dict[Device, Tensor]:
        scale = self._made("_check_inf_per_device")[0]
        found = self._unscale_grads_(optimizer, self._zero(scale) + 1, self._zero(scale), True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = _by_name(found)
        return found

    def _found_inf_per_device(self, optimizer: Any) -> dict[Device, Tensor]:
        return {Device(name): flag for name, flag in self._per_optimizer_states[id(optimizer)]["found_inf_per_device"].items()}


__all__ = ["GradScaler", "OptState"]
