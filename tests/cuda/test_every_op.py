"""Every row of the op table as CUDA C on the emulator, against its eager function; compiled for real devices by NVRTC."""

from __future__ import annotations

import numpy as np
import pytest

from dynagraph.backends.cuda.backend import NotForDevice
from dynagraph.ir.ops import Op, Scan
from tests.backends.test_every_op import EITHER_ZERO, SUMS, chosen, graph_of, tolerance
from tests.cuda.device import emulated
from tests.ops.cases import ROWS, Case
from tests.ops.evaluate import assert_same


def in_parts(case: Case) -> bool:
    """Whether a scan adds up, or multiplies, in another order than NumPy."""
    return isinstance(case.op.lowering, Scan) and case.operands[0].dtype.kind in "fc"


BATCH = 24  # cases of an op that one source computes


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_kernels_give_what_eager_gives(op: Op) -> None:
    if op.name == "call_out":
        with pytest.raises(NotForDevice, match="is called as it is"):
            emulated(graph_of(chosen(op)[:1])[0])
        return
    cases = chosen(op)
    batch = cases[:: len(cases) // BATCH + 1]
    graph, arrays = graph_of(batch)
    results = emulated(graph)(*arrays)
    for case, got in zip(batch, results):
        with np.errstate(all="ignore"):
            want = np.asarray(op.eager(np, *case.operands, **op.bind_attrs(case.attrs)))
        if op.name in EITHER_ZERO and want.dtype.kind == "f":
            got, want = got + 0.0, want + 0.0
        try:
            assert_same(got, want, SUMS if in_parts(case) else tolerance(case))
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from None
