"""Record a sample of the table as real torch runs it: ``python -m tests.torch.record`` writes recorded.npz for test_recorded.py.

``python -m tests.torch.record PACKAGE`` records that of another package that has `cases`.

The file has two arrays: one of bytes with all numbers one behind the other, and one with the outcomes as JSON, in which an array is
[dtype, shape, first byte].  Floating point numbers are kept as float32.
"""

from __future__ import annotations

import io
import json
import pathlib
import sys
import zipfile
import zlib
from typing import Any

import numpy as np

from tests.torch.outcomes import forms_of, run
from tests.torch.table import Case, families

PACKAGE = "tests.torch"
ONE_IN = 6  # of the rows
LARGEST = 64  # elements: what is larger is not recorded
_KEPT = {"float64": "<f4", "float32": "<f4", "float16": "<f2", "complex128": "<c8", "complex64": "<c8"}


class Packer:
    """Outcomes as JSON, with their arrays in one row of bytes."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def packed(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            name = value.dtype.name
            small = np.asarray(value, _KEPT.get(name, value.dtype.newbyteorder("<")))
            if name.startswith("int") and value.size and np.abs(value).max() < 128:
                small = value.astype(np.int8)
            start = len(self.bytes)
            self.bytes += small.tobytes()
            return {"array": [name, small.dtype.str, list(value.shape), start]}
        if isinstance(value, dict):
            return {k: self.packed(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.packed(v) for v in value]
        return value


def unpacked(value: Any, row: bytes) -> Any:
    if isinstance(value, dict):
        if "array" in value:
            name, kept, shape, start = value["array"]
            count = int(np.prod(shape))
            with np.errstate(all="ignore"):
                return np.frombuffer(row, kept, count, start).reshape(shape).astype(name)
        return {k: unpacked(v, row) for k, v in value.items()}
    if isinstance(value, list):
        return [unpacked(v, row) for v in value]
    return value


def chosen(case: Case) -> bool:
    """Whether a row is in the sample: by its text alone."""
    return zlib.crc32(str(case).encode()) % ONE_IN == 0


def _sizes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.size)
    if isinstance(value, dict):
        return max(map(_sizes, value.values()), default=0)
    return max(map(_sizes, value), default=0) if isinstance(value, list) else 0


def _without_texts(outcome: Any) -> Any:
    if isinstance(outcome, dict):
        kept = {k: _without_texts(v) for k, v in outcome.items()}
        return kept | {"text": ""} if "error" in kept else kept
    return outcome


def path_of(package: str) -> pathlib.Path:
    """The file of a package's sample."""
    return pathlib.Path(__file__).parents[2].joinpath(*package.split("."), "recorded.npz")


def _rows(package: str) -> dict[tuple[str, str], Case]:
    """All rows by family and text; of rows with one text the first."""
    found: dict[tuple[str, str], Case] = {}
    for family, cases in families(package=package).items():
        for case in cases:
            found.setdefault((family, str(case)), case)
    return found


def record(torch: Any, package: str = PACKAGE) -> tuple[int, int]:
    """Write the file; how many outcomes it has, and its bytes."""
    packer, outcomes, path = Packer(), [], path_of(package)
    for (family, name), case in _rows(package).items():
        for form, dtype in forms_of(torch, case) if chosen(case) else ():
            # beside the call as it is written, one in six of the other forms and dtypes
            key = zlib.crc32(f"{case} {form} {dtype}".encode())
            if (form, dtype) not in (("function", "float64"), ("method", "float64")) and key % 6:
                continue
            outcome = run(torch, case, form, dtype)
            if _sizes(outcome) > LARGEST or "not implemented for" in outcome.get("text", ""):
                continue
            kept = outcome if case.option("text", False) else _without_texts(outcome)
            outcomes.append([family, name, form, dtype, packer.packed(kept)])
    text = json.dumps({"torch": torch.__version__, "outcomes": outcomes}, separators=(",", ":")).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, raw in (("numbers", bytes(packer.bytes)), ("outcomes", text)):
            entry = io.BytesIO()
            np.save(entry, np.frombuffer(raw, np.uint8))
            file.writestr(zipfile.ZipInfo(f"{name}.npy", (2026, 1, 1, 0, 0, 0)), entry.getvalue(), zipfile.ZIP_DEFLATED)
    return len(outcomes), path.stat().st_size


def recorded(package: str = PACKAGE) -> list[tuple[Case, str, str, Any]]:
    """What was recorded, with the rows that it is of; rows that are gone are left out."""
    path = path_of(package)
    if not path.exists():
        return []
    with np.load(path) as file:
        numbers, text = file["numbers"].tobytes(), file["outcomes"].tobytes()
    rows, found = _rows(package), []
    for family, name, form, dtype, outcome in json.loads(text)["outcomes"]:
        case = rows.get((family, name))
        if case is not None:
            found.append((case, form, dtype, unpacked(outcome, numbers)))
    return found


if __name__ == "__main__":
    import torch

    count, size = record(torch, *sys.argv[1:])
    print(f"{count} outcomes, {size} bytes")
    sys.exit(size > 1_000_000)
