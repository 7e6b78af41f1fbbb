"""Every row of the table compiled against its plain call, as a function, as a method and in place; random programs, too."""

from __future__ import annotations

import pytest

from tests.torch.compiled import check
from tests.torch.compiled_programs import difference, doable, made_small
from tests.torch.programs import program
from tests.torch.table import Case, families

ROWS = [pytest.param(case, id=f"{family}-{case}") for family, cases in families().items() for case in cases]


@pytest.mark.sampled(320)
@pytest.mark.parametrize("case", ROWS)
def test_compiled_calls_do_what_plain_ones_do(case: Case) -> None:
    for form in ("function", "method", "in place"):
        found, _ = check(case, form)
        assert not found, form
    found, _ = check(case, "function", outside=True)
    assert not found, "gradients outside"


@pytest.mark.sampled(120)
@pytest.mark.parametrize("seed", range(300))
def test_random_programs(seed: int) -> None:
    steps = program(seed)
    if difference(steps)[0]:
        small = made_small(steps)
        pytest.fail(f"program {seed}: {difference(small)[0]}\n" + "\n".join(map(str, doable(small)[0])))
