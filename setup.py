"""The C extensions; everything else about the package stands in pyproject.toml."""

import shutil
import sysconfig
from glob import glob
from os import environ
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

FLAGS = [
    "-O2",
    "-std=gnu11",
    "-fvisibility=hidden",  # what one file calls of another is bound when it is linked
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
    "-pthread",
]
ROOMS = ("dispatch", "norms", "products", "recurrent")  # of dynagraph/_core, whose files make one extension
# the hot path goes through several files, and a call between two of them costs as much as what it does
LINK_TIME_OPTIMISATION = ["-flto=auto", "-flto-partition=one"]


class BuildExtensions(build_ext):
    """Says in one sentence what to do where there is no C compiler, or it fails."""

    def optimises_at_link_time(self) -> bool:
        """Whether this compiler and its linker can."""
        source = Path(self.build_temp, "nothing.c")
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("int nothing;\n")
        try:
            objects = self.compiler.compile([str(source)], output_dir=self.build_temp, extra_postargs=LINK_TIME_OPTIMISATION)
            self.compiler.link_shared_object(objects, str(source.with_suffix(".so")), extra_postargs=LINK_TIME_OPTIMISATION)
        except (CompileError, LinkError):
            return False
        return True

    def build_extension(self, ext: Extension) -> None:
        if len(ext.sources) > 1 and self.optimises_at_link_time():
            ext.extra_compile_args += LINK_TIME_OPTIMISATION
            ext.extra_link_args += LINK_TIME_OPTIMISATION
        try:
            super().build_extension(ext)
        except Exception as error:
            if ext.optional:
                raise
            compiler = (environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
            failed = f"the C compiler {compiler} failed, as it says above" if shutil.which(compiler) else f"there is no {compiler}"
            raise SystemExit(
                f"dynagraph: {failed}; to install from source, install gcc or clang (Debian, Ubuntu: apt-get install gcc; Fedora: "
                "dnf install gcc) or name yours in CC, and Python's headers (python3-dev); a wheel needs none of these "
                f"({type(error).__name__})"
            ) from None


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=[
        Extension(
            "dynagraph._core._dispatch",
            sources=sorted(file for room in ROOMS for file in glob(f"dynagraph/_core/{room}/*.c")),
            depends=sorted(file for room in (".", *ROOMS) for file in glob(f"dynagraph/_core/{room}/*.h")),
            include_dirs=[numpy.get_include(), "dynagraph/_core"],
            extra_compile_args=[*FLAGS],
            extra_link_args=["-pthread"],
        ),
        # leans on CPython's internals: on a version that it does not know it fails to build, and dynagraph works without it
        Extension(
            "dynagraph._core._frame_hook",
            sources=["dynagraph/_core/frame_hook.c"],
            depends=["dynagraph/_core/stack.h"],
            extra_compile_args=FLAGS,
            optional=True,
        ),
    ]
)
