"""``torch.fx.experimental.proxy_tensor``: nothing traces by stand-ins."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of


def get_proxy_mode() -> None:
    """None: nothing is traced."""


__getattr__ = getattr_of(__name__)
__all__ = ["get_proxy_mode"]
