"""CUDA kernels without a GPU: an emulator that runs their source on the CPU, and the tests that lean on it."""
