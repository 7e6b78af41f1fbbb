"""A package, so that pytest calls what is in it `tests.cuda...`: a module `cuda` would hide NVIDIA's, which CuPy imports."""
