"""Recurrent layers on a GPU: plain operations on the stand-in for CuPy's arrays, compared with the same on the CPU."""

from __future__ import annotations

import pytest

from tests.torch.table import Case, families
from tests.torch.test_on_device import check

ROWS = [pytest.param(row, id=str(row)) for row in families("functions", "tests.torch.rnn")["functions"] if not row.raises]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("row", ROWS)
def test_is_the_same_on_a_gpu(row: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check(row, monkeypatch)
