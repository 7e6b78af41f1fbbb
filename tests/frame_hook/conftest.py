"""Shared by the tests of the frame hook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dynagraph._core._frame_hook import is_active, set_watcher


@pytest.fixture(autouse=True)
def own_watcher() -> Iterator[None]:
    """These tests begin without a watcher, and leave dynagraph's, which the process's other tests need."""
    before = set_watcher(None)
    yield
    set_watcher(before)
    assert not is_active()
