"""Defects of the past, and the tests that prove each mended: these run in every `make test`, whatever is sampled.

One row a line: the defect, then the ids of its tests ("file.py::test" stands for all cases of a test that is not sampled).
"""

from __future__ import annotations

DEFECTS: dict[str, tuple[str, ...]] = {
}
PROOFS = frozenset(proof for proofs in DEFECTS.values() for proof in proofs)
