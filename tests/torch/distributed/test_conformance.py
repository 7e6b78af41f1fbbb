"""torch.distributed against PyTorch's gloo, live."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch.distributed.ranks import cases_of, differences, needs_mpi

pytest.importorskip("torch")


@needs_mpi
@pytest.mark.parametrize("ranks", (2, 3))
def test_collectives_give_what_gloo_gives(ranks: int, tmp_path: Path) -> None:
    folders = [tmp_path / which for which in ("mpi", "torch")]
    for folder in folders:
        folder.mkdir()
    assert not differences(*(cases_of(folder.name, ranks, folder) for folder in folders))
