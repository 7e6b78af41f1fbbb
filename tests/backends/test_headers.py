"""What a generated file has of the headers: what it uses, whole, and nothing else."""

from __future__ import annotations

import re

import pytest

from dynagraph.backends.c import backend, headers, regions
from dynagraph.backends.toolchain import toolchain

SUPPORT = {"graphs": backend.HEADERS, "loops": regions.HEADERS}
OUTSIDE = "#define DG_PARALLEL_NANOSECONDS 1.0\n#define DG_PART_NANOSECONDS 1.0\n"  # what programs define
NAMES = re.compile(r"\b(?:dg|DG)_\w+")


def names(support: tuple[str, ...]) -> set[str]:
    return set(headers._library(support)[1])


def test_nothing_else_is_there() -> None:
    text = headers.with_headers(backend.HEADERS, "", "int64_t f(double *x) { return dg_sum_f64(x, 9, 0); }")
    assert "dg_far_f64(" in text and "dg_half(" in text and "typedef __INT64_TYPE__ int64_t;" in text
    assert "_f32" not in text and "dg_steps" not in text and "dg_runtime" not in text and "gemm" not in text
    assert "#include" not in text and "/*" not in text


def test_what_macros_define_is_expanded() -> None:
    text = headers.with_headers(regions.HEADERS, "", "int64_t f(char *x) { return dg_loop_argmax_u16(x, 9, 2); }")
    assert text.count("static DG_UNUSED") == 1 and "##" not in text


def test_more_definitions() -> None:
    lanes = "DG_DEFINE_LANES(double, f64, i64, int64_t, 4)\nDG_DEFINE_LANES(float, f32, i32, int32_t, 8)"
    text = headers.with_headers(regions.HEADERS, "", "int f(dg_f64x4 x) { return 0; }", definitions=lanes)
    assert "dg_f64x4 __attribute__" in text and "f32" not in text and "dg_blend" not in text


@pytest.mark.parametrize("support", SUPPORT.values(), ids=SUPPORT)
def test_everything_that_a_header_declares_is_known(support: tuple[str, ...]) -> None:
    """Names that begin with dg_ or DG_ are of items, of parameters of macros, or of what programs define."""
    items = headers._library(support)[0]
    mentioned = {name for item in items if not item.text.startswith("#define DG_DEFINE_") for name in NAMES.findall(item.text)}
    local = {"dg_floats", "dg_ints", "DG_TYPES", "DG_LARGE", "DG_QUICK", "DG_IN_PARTS", "DG_HAS_"}
    assert mentioned - names(support) - local - {"DG_PARALLEL_NANOSECONDS", "DG_PART_NANOSECONDS"} == set()


@pytest.mark.parametrize("support", SUPPORT.values(), ids=SUPPORT)
def test_all_of_it_compiles_and_loads(support: tuple[str, ...]) -> None:
    items = [item for item in headers._library(support)[0] if item.text.endswith("}") and item.names[0].startswith("dg_")]
    used = sorted({item.names[0] for item in items})
    assert len(used) > 40
    text = f"void *used[] = {{{', '.join(used)}}};\n"
    toolchain().quick.compile(headers.with_headers(support, OUTSIDE, text))


def test_what_is_no_item_is_refused() -> None:
    with pytest.raises(ValueError, match="no item of a header: }"):
        headers._divided("}\n")
