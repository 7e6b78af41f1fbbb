"""The tests of the backends compile with all optimisations, whatever the others do: gcc has made wrong code only there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dynagraph as dg


@pytest.fixture(autouse=True)
def all_optimisations() -> Iterator[None]:
    with dg.config.override(tiers="best"):
        yield
