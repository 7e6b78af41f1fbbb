"""Files that PyTorch wrote, read here: also where there is no PyTorch."""

from __future__ import annotations

import io

import numpy as np
import pytest

import dynagraph.torch as own
from tests.torch.serialization.cases import CASES, CODE, DATA, Describe, outputs
from tests.torch.serialization.record import LEGACY, PATH

FILES = {name: data.tobytes() for name, data in np.load(PATH).items()}


@pytest.mark.parametrize("name", FILES)
def test_what_torch_wrote_is_read(name: str) -> None:
    case = name[4:]
    make = CASES.get(case) or DATA.get(case) or CODE[case]
    got = own.load(io.BytesIO(FILES[name]), weights_only=case not in CODE)
    expected = make(own)
    assert Describe(own)(got) == Describe(own)(expected)
    if case in CODE:
        np.testing.assert_allclose(outputs(own, got), outputs(own, expected)) if case != "optimizer" else None


@pytest.mark.parametrize("old", [False, True])
def test_what_is_written_is_read(old: bool) -> None:
    for name, make in {**CASES, **DATA, **CODE}.items():
        value = make(own)
        if old and name not in LEGACY:
            continue
        for protocol in (2, 4):
            file = io.BytesIO()
            own.save(value, file, pickle_protocol=protocol, _use_new_zipfile_serialization=not old)
            file.seek(0)
            assert Describe(own)(own.load(file, weights_only=name not in CODE)) == Describe(own)(value), name
            file.seek(0)
            assert Describe(own)(own.load(file, weights_only=False)) == Describe(own)(value), name
