"""A package, so that pytest names what is in it `tests.cuda...`: a module `cuda` of ours would hide NVIDIA's, which CuPy imports."""
