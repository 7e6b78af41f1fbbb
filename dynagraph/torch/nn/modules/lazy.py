"""Layers that learn the sizes of their parameters from their first input."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.parameter import is_lazy
from dynagraph.torch.nn.modules.states import own_states


class LazyModuleMixin:
    """What layers have whose parameters get their shapes at the first call, or from a state dict that is loaded.

    A subclass makes `UninitializedParameter` and `UninitializedBuffer`, and gives them shapes in ``initialize_parameters``, which
    has the arguments of the first call. After that call the module is of the class `cls_to_become`. Parameters should be handed to
    an optimizer only then.

    >>> from dynagraph import torch
    >>> layer = torch.nn.LazyLinear(4)
    >>> layer.weight
    <UninitializedParameter>
    >>> layer(torch.ones(2, 3)).shape, layer
    (torch.Size([2, 4]), Linear(in_features=3, out_features=4, bias=True))
    """

    cls_to_become: type[Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, value in own_states(self).items():  # what has no shape cannot be detached
            destination[prefix + name] = value if is_lazy(value) or keep_vars else value.detach()

    def _lazy_load_hook(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any
    ) -> None:
        """Before a state dict is loaded: what has no shape takes the shape that is there."""
        for name, own in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if given is not None and is_lazy(own) and not is_lazy(given):
                with no_grad():
                    own.materialize(given.shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters their shapes, by the arguments of the first call."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {self.__class__.__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether there are parameters or buffers without a shape."""
        return any(is_lazy(value) for value in (*self._parameters.values(), *self._buffers.values()))

    def _infer_parameters(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """Before the first call."""
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy forward pass to correctly "
            "initialize the modules"
        )


__all__ = ["LazyModuleMixin"]
