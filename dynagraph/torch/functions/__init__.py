"""PyTorch's functions by family: each with PyTorch's name, arguments and rules.  `common.py` says how they are declared."""
