"""Kinds of values under capture, and what each of them does."""
