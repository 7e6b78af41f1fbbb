"""Tests of NumPy that no compiler could pass which runs a function in parts: what they look at is how the interpreter runs it."""

from __future__ import annotations

EXCLUDED: dict[str, str] = {}  # by id, without the parameters


def reason_for(name: str) -> str | None:
    """Why a test is left out, if it is."""
    return EXCLUDED.get(name.split("[")[0])
