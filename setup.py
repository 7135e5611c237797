"""Builds what is compiled (codec, datagrams, simulator, audit, logs) where that can be, else goes on without.

Everything else about the package is in `pyproject.toml`.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WITHOUT = "Vivum goes on without its compiled parts: their plain-Python twins serve, more slowly."


class OptionalBuild(build_ext):
    """Builds the extension, or says in one sentence why there is none."""

    def finalize_options(self):
        """Compile as many at a time as there are processors: most of an installation's time goes here."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extension(self, ext):
        """Build one extension; a failure is told and not raised."""
        try:
            super().build_extension(ext)
        except Exception as error:
            # Whatever a compiler can do wrong, an installation without it must succeed.
            sys.stderr.write(f"The C compiler failed ({error}). {WITHOUT}\n")


def extensions():
    """List the extensions that can be built here."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        sys.stderr.write(f"Cython is not installed. {WITHOUT}\n")
        return []
    made = [
        Extension(
            f"vivum.wire.{name}",
            [f"src/vivum/wire/{name}.pyx"],
            depends=[
                f"src/vivum/wire/{part}.pxd"
                for part in ("_arguments", "_body", "_copies", "_frame_bytes", "_header", "_layout")
            ],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for name in ("_codec", "_frame_bytes", "_frames", "_relabel", "_window", "_xor")
    ]
    others = (
        "pipeline.audit._causal_walk",
        "runtime._datagrams",
        "runtime.shared_memory._slots",
        "sim._engine",
        "storage._packing",
    )
    made += [
        Extension(
            f"vivum.{name}",
            [f"src/vivum/{name.replace('.', '/')}.pyx"],
            depends=["src/vivum/wire/_frame_bytes.pxd"],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for name in others
    ]
    # Modules of plain Python with a declaration file beside them (docs/design/compiled.md).
    declared = [
        path.with_suffix(".py") for path in sorted(Path("src").rglob("*.pxd")) if path.with_suffix(".py").exists()
    ]
    made += [
        Extension(
            ".".join(path.with_suffix("").parts[1:]),
            [str(path)],
            # No debug information: it takes half of the compiler's time.
            extra_compile_args=["-O2", "-g0"],
            optional=True,
        )
        for path in declared
    ]
    ready = cythonize(
        made,
        build_dir="build/cython",
        include_path=["src"],
        # Annotations are for people and mypy; what C may assume is in the declaration files.
        compiler_directives={"language_level": 3, "annotation_typing": False},
        quiet=True,
    )
    for each in ready:
        # cythonize makes new objects and loses this; without it an editable install wants to copy what was not built.
        each.optional = True
    return ready


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild})
