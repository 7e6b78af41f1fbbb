"""The CUDA backend: kernels as CUDA C, compiled for GPUs."""
