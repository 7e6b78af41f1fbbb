"""The C backend: kernels as C, compiled for the CPU."""
