"""Ordinary scripts that say ``import torch``, as tutorials write them, with what PyTorch prints beside them.

`python -m tests.torch.scripts.record` runs them under PyTorch, and writes down what they print.
"""
