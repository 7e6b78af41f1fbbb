"""Every row of the op table as CUDA C on the emulator, against its eager function; compiled for real devices by NVRTC."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dynagraph.backends.cuda.cublas import CublasLt
from dynagraph.errors import GraphError
from dynagraph.ir.ops import OPS, Op, Scan
from dynagraph.ir.optable import convolution, pooling
from tests.backends.test_every_op import EITHER_ZERO, SUMS, ULP, chosen, graph_of, tolerance
from tests.cuda.device import emulated
from tests.cuda.products import Calls, stand_in_cublas
from tests.ops.cases import ROWS, Case
from tests.ops.evaluate import assert_same

pytestmark = [
    pytest.mark.sampled(20),
    pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning"),
]


def order_tells(case: Case) -> bool:
    """Whether a scan overflows on the way: max + max - max is infinite or not."""
    if not isinstance(case.op.lowering, Scan) or case.operands[0].dtype.kind not in "fc":
        return False
    sizes = np.abs(case.operands[0])
    with np.errstate(all="ignore"):
        totals = np.cumsum(sizes), np.cumprod(np.maximum(sizes, 1)), np.cumprod(np.minimum(sizes, 1)[sizes > 0])
    return not all(np.isfinite(t).all() for t in totals) or bool((totals[2] < np.finfo(sizes.dtype).tiny).any())


def device_tolerance(case: Case) -> int | None:
    """In units in the last place: scans add up, and multiply, in another order than NumPy; complex functions are not glibc's."""
    kind = case.operands[0].dtype.kind if case.operands else ""
    if isinstance(case.op.lowering, Scan) and kind in "fc":
        return SUMS
    return tolerance(case) if kind != "c" else max(ULP, tolerance(case) or 0)


ON_THE_HOST = tuple(name for name in (*convolution.ROUTINES, *pooling.ROUTINES) if name not in pooling.AVERAGES)
NO_OPERANDS = ("complex_accumulate",)  # its result is not an operand again
BATCH = 24  # cases of an op that one source computes


@pytest.mark.parametrize("op", [op for op in ROWS if op.name not in ON_THE_HOST], ids=lambda op: op.name)
def test_kernels_give_what_eager_gives(op: Op) -> None:
    check(op)


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_convolutions_and_pools_are_refused(name: str) -> None:
    """Placement leaves them on the host; tensors of CuPy's arrays multiply windows."""
    with pytest.raises(GraphError, match="this device has no kernels for convolutions and pools"):
        check(OPS[name])


def test_products_by_cublas_give_what_eager_gives() -> None:
    with Calls() as count:
        check(OPS["matmul"], stand_in_cublas(), lambda case: all(x.dtype.kind in "fc" and x.size for x in case.operands))
    assert count.calls >= BATCH // 3  # others have a vector, or an inner size of 0


def check(op: Op, products: CublasLt | None = None, wanted: Callable[[Case], bool] = lambda case: True) -> None:
    cases = [case for case in chosen(op) if not order_tells(case) and wanted(case)]
    batch = cases[:: len(cases) // BATCH + 1]
    assert batch or op.name in NO_OPERANDS
    if not batch:
        return
    graph, arrays = graph_of(batch)
    results = emulated(graph, products=products)(*arrays)
    for case, got in zip(batch, results):
        with np.errstate(all="ignore"):
            want = np.asarray(op.eager(np, *case.operands, **op.bind_attrs(case.attrs)))
        if op.name in EITHER_ZERO and want.dtype.kind == "f":
            got, want = got + 0.0, want + 0.0
        try:
            assert_same(got, want, device_tolerance(case))
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from None
