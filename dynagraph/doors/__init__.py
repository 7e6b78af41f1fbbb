"""Doors: calls of NumPy, CuPy and ml_dtypes functions as graph nodes.  Doors know Builders, not frames."""
