"""Rows of cases by family: each module has a list ``CASES``; tests/torch/table.py says what a row is."""
