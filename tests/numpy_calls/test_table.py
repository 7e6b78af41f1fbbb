"""docs/numpy.md is what the calls give now, and no public callable of NumPy's is without a row."""

from __future__ import annotations

import numpy as np
import pytest

from . import support

VERSION = ".".join(np.__version__.split(".")[:2])
SECTIONS = {s.title: s for s in support.sections()}


@pytest.mark.parametrize("title", SECTIONS)
def test_every_public_callable_has_a_row(title):
    section = SECTIONS[title]
    assert [n for n in section.names if n not in section.calls and n not in section.not_tried] == []


@pytest.mark.parametrize("title", SECTIONS)
def test_the_page_is_current(title):
    """Captured, each call gives what it gives plainly; `python -m tests.numpy_calls.support` writes the page anew."""
    found = support.lines(SECTIONS[title])
    page = support.PAGE.read_text()
    if f"NumPy {VERSION}." in page:
        assert [line for line in found if line not in page.splitlines()] == []


@pytest.mark.parametrize("title", ["numpy", "numpy.linalg", "ndarray methods"])
def test_symbolic_sizes_give_the_same(title):
    section = SECTIONS[title]
    for name in section.names:
        if name not in section.not_tried:
            support.row(name, section.calls[name], dynamic=True)
