"""Each example does what its text says, and goes on from a checkpoint as if it had not been stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

CLAIMS: dict[str, Any] = {
    "digits_cnn": lambda found: found.accuracy > 0.8,
}
RESUMED = {"digits_cnn": "epochs"}


@pytest.mark.parametrize("example", CLAIMS, indirect=True)
def test_an_example_learns_compiled(example: Any, tmp_path: Path) -> None:
    """Its step is one program, on every call."""
    found = example.main(["--quick", "--out", str(tmp_path / "picture.png")])
    assert (tmp_path / "picture.png").stat().st_size > 5000
    assert CLAIMS[example.__name__](found), found
    stats = found.step.stats
    assert stats.hits > 0 and not stats.breaks and stats.refusals == 0, stats


@pytest.mark.sampled(4)
@pytest.mark.parametrize("example", RESUMED, indirect=True)
def test_an_example_goes_on_from_its_checkpoint(example: Any, tmp_path: Path) -> None:
    """With the same numbers as without a stop."""
    given = ["--eager", "--quick", "--out", "", f"--{RESUMED[example.__name__]}"]
    whole = example.main([*given, "2"])
    checkpoint = ["--checkpoint", str(tmp_path / "run.pt")]
    first = example.main([*given, "1", *checkpoint])
    resumed = example.main([*given, "2", *checkpoint])
    assert whole.losses[: len(first.losses)] == first.losses
    assert resumed.losses == whole.losses
