"""The garbage collector is paused while programs are made, and only then."""

from __future__ import annotations

import gc

import pytest

from dynagraph.driver.collector import paused


def test_thresholds_are_put_back() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), paused():
        assert gc.get_threshold()[0] == 0 and gc.isenabled()
        with paused():
            pass
        assert gc.get_threshold()[0] == 0
        raise KeyError
    assert gc.get_threshold() == before


def test_what_the_program_sets_meanwhile_stays() -> None:
    before = gc.get_threshold()
    try:
        with paused():
            gc.set_threshold(123, 4, 5)
        assert gc.get_threshold() == (123, 4, 5)
        gc.set_threshold(0)
        with paused():
            pass
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
