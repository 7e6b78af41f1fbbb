"""Tests that ask for `way` are run compiled, and as plain Python on the tape."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dynagraph as dg


@pytest.fixture(params=["compiled", "tape"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "tape":
        with dg.disable():
            yield request.param
    else:
        with dg.config.override(strict=True):
            yield request.param
