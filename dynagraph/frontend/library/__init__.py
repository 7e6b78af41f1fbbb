"""What calls mean: builtins, the standard library, NumPy's own objects."""
