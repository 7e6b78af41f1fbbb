"""``ReduceOp``: how values of several processes become one."""

from __future__ import annotations

import enum
import warnings
from typing import Any


class RedOpType(enum.Enum):
    """The kinds of reductions, with PyTorch's numbers."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


class _ReduceOpMeta(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, RedOpType)


class ReduceOp(metaclass=_ReduceOpMeta):
    """SUM, AVG (the sum divided by the number of processes), PRODUCT, MIN, MAX, and BAND, BOR, BXOR of integers' bits."""

    RedOpType = RedOpType
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = RedOpType

    def __new__(cls, op: RedOpType) -> RedOpType:  # type: ignore[misc]
        return RedOpType(op)


class _OldNames:
    """``reduce_op.SUM``: the older name of ``ReduceOp.SUM``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        warnings.warn("`torch.distributed.reduce_op` is deprecated, please use `torch.distributed.ReduceOp` instead", FutureWarning, 2)
        return getattr(ReduceOp, name)


reduce_op = _OldNames()


def supports_complex(reduceOp: RedOpType) -> bool:
    """Whether complex numbers can be reduced so."""
    return reduceOp in (RedOpType.SUM, RedOpType.AVG)


__all__ = ["RedOpType", "ReduceOp", "reduce_op", "supports_complex"]
