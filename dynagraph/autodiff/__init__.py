"""Automatic differentiation: the public transforms, captured or on a tape."""
