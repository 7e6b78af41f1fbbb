"""Tests of the op table, generated from its rows."""

import dynagraph.ir.optable  # noqa: F401  (fills OPS)
