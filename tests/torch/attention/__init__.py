"""Attention: conformance with PyTorch, bits, memory."""
