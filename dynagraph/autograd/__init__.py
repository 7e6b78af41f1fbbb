"""Define-by-run gradients: operations on arrays are recorded as they run, and gradients are those of their rows of the op table."""
