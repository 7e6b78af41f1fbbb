"""Tests of NumPy that are left out, by what they look at and compiled code does not promise.

What counts references is switched off as NumPy does it on other interpreters (HAS_REFCOUNT, in plugin.py).
"""

from __future__ import annotations

WARNINGS = "expects a floating-point warning: compiled code gives none"
WARNS_ON_WRITE = "writes to an array that only warns of it: compiled code takes such arrays for read-only, or does not warn"
LAST_BIT = "compares a product with what NumPy makes of other operands, to the last bit: BLAS may add in another order"
REFERENCES = "counts references, resizes arrays in place, or closes memory: that depends on who holds it, as parts behind breaks do"

EXCLUDED: dict[str, str] = {  # by id, without the parameters
    "_core/tests/test_multiarray.py::TestDot::test_dot_3args": LAST_BIT,
    "_core/tests/test_multiarray.py::TestFlags::test_warnonwrite": WARNS_ON_WRITE,
    "_core/tests/test_multiarray.py::TestFromBuffer::test_mmap_close": REFERENCES,
    "_core/tests/test_multiarray.py::TestFlat::test_refcount": REFERENCES,
    "_core/tests/test_multiarray.py::TestResize::test_check_reference": REFERENCES,
    "_core/tests/test_multiarray.py::TestResize::test_check_reference_2": REFERENCES,
    "_core/tests/test_multiarray.py::TestResize::test_check_weakref": REFERENCES,
    "_core/tests/test_multiarray.py::TestCTypes::test_ctypes_data_as_holds_reference": REFERENCES,
    "_core/tests/test_multiarray.py::TestSizeOf::test_resize_structured": REFERENCES,
    "_core/tests/test_scalarmath.py::test_scalar_integer_operation_divbyzero": WARNINGS,
    "_core/tests/test_scalarmath.py::test_scalar_integer_operation_overflow": WARNINGS,
    "_core/tests/test_scalarmath.py::test_scalar_signed_integer_overflow": WARNINGS,
    "_core/tests/test_scalarmath.py::test_scalar_unsigned_integer_overflow": WARNINGS,
    "_core/tests/test_ufunc.py::TestUfunc::test_broadcast": WARNS_ON_WRITE,
    "_core/tests/test_ufunc.py::TestUfunc::test_sum": WARNINGS,
    "_core/tests/test_ufunc.py::test_ufunc_methods_floaterrors": WARNINGS,
    "lib/tests/test_function_base.py::TestLeaks::test_frompyfunc_leaks": REFERENCES,
    "lib/tests/test_stride_tricks.py::test_writeable": WARNS_ON_WRITE,
}


def reason_for(name: str) -> str | None:
    """Why a test is left out, if it is."""
    return EXCLUDED.get(name.split("[")[0])
