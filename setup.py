"""The C extensions; everything else about the package stands in pyproject.toml."""

from glob import glob

import numpy
from setuptools import Extension, setup

FLAGS = [
    "-O2",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
    "-pthread",
]

setup(
    ext_modules=[
        Extension(
            "dynagraph._core._dispatch",
            sources=sorted(glob("dynagraph/_core/dispatch/*.c")),
            depends=sorted(glob("dynagraph/_core/dispatch/*.h")) + ["dynagraph/_core/runtime.h"],
            include_dirs=[numpy.get_include(), "dynagraph/_core"],
            extra_compile_args=FLAGS,
            extra_link_args=["-pthread"],
        ),
        # leans on CPython's internals: on a version that it does not know it fails to build, and dynagraph works without it
        Extension(
            "dynagraph._core._frame_hook",
            sources=["dynagraph/_core/frame_hook.c"],
            extra_compile_args=FLAGS,
            optional=True,
        ),
    ]
)
