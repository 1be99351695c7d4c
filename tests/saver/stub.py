"""Compiling the stand-ins for the CUDA libraries."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SOURCES = Path(__file__).parent / "native_stub"


def build_stub(folder: Path) -> None:
    """Compile the stand-ins for libcuda.so.1 and libcudart.so.13 into the folder.

    Raises:
        FileNotFoundError: there is no C compiler.
        subprocess.CalledProcessError: it does not compile them.
    """
    driver, runtime = folder / "libcuda.so.1", folder / "libcudart.so.13"
    versions = f"-Wl,--version-script={SOURCES / 'libcudart.map'}"
    compile_shared(driver, SOURCES / "libcuda.c")
    compile_shared(runtime, versions, SOURCES / "libcudart.c", driver)


def compile_shared(output: Path, *arguments: str | Path) -> None:
    """Compile a shared library.

    Raises:
        FileNotFoundError: there is no C compiler.
        subprocess.CalledProcessError: it does not compile.
    """
    command = [*_compiler(), "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{output.name}"]
    subprocess.run([*command, "-o", output, *arguments], check=True, capture_output=True, text=True)


def _compiler() -> list[str]:
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is not None:
        return [found]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise FileNotFoundError("no C compiler; install one, or ziglang from PyPI")
