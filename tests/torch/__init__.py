"""dynagraph.torch against PyTorch: a table of cases, random programs, and a recorded sample that needs no PyTorch."""
