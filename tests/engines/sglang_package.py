"""The published SGLang package, downloaded and read, not installed: request classes, routes, rules, unpickler."""

from __future__ import annotations

import ast
import copy
import importlib.util
import io
import pickle
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

VERSION = "0.5.23"
WHEEL = f"sglang-{VERSION}-cp311-cp311-manylinux_2_34_x86_64.whl"
IO_STRUCT, HTTP_SERVER = "managers/io_struct.py", "entrypoints/http_server.py"


def download(folder: Path) -> Path:
    """The wheel, by pip's own ways; once for a folder."""
    wheel = folder / WHEEL
    if not wheel.exists():
        what = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_34_x86_64"]
        program = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*program, *what, f"--dest={folder}", f"sglang=={VERSION}"], check=True, timeout=110)
    return wheel


@dataclass(frozen=True)
class Field:
    """One field of a request class."""

    annotation: str
    required: bool


class Package:
    """What is read from the wheel. Nothing of it is imported with its own imports."""

    def __init__(self, wheel: Path) -> None:
        self._wheel = zipfile.ZipFile(wheel)
        self._trees: dict[str, ast.Module] = {}

    def source(self, path: str) -> str:
        """A file under ``sglang/srt``."""
        return self._wheel.read(f"sglang/srt/{path}").decode()

    def tree(self, path: str) -> ast.Module:
        """The same, parsed, once."""
        if path not in self._trees:
            self._trees[path] = ast.parse(self.source(path))
        return self._trees[path]

    @cached_property
    def _structs(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.tree(IO_STRUCT).body if isinstance(node, ast.ClassDef)}

    def fields(self, name: str) -> dict[str, Field]:
        """The fields of a request class, those of its bases included."""
        node = self._structs[name]
        found: dict[str, Field] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in self._structs:
                found |= self.fields(base.id)
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                found[one.target.id] = Field(ast.unparse(one.annotation), one.value is None)
        return found

    @cached_property
    def routes(self) -> dict[tuple[str, str], ast.AsyncFunctionDef | ast.FunctionDef]:
        """Method and path to the function that serves it."""
        found = {}
        for path in (HTTP_SERVER, "entrypoints/v1_loads.py"):
            for node in ast.walk(self.tree(path)):
                if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                    found |= {key: node for one in node.decorator_list for key in _routes(one)}
        return found

    def body_class(self, method: str, path: str) -> str | None:
        """Name of the class that the body of a request is read as, None where it takes none."""
        for argument in self.routes[method, path].args.args:
            names = [one.id for one in ast.walk(argument.annotation or ast.Pass()) if isinstance(one, ast.Name)]
            found = [name for name in names if name in self._structs]
            if found:
                return found[0]
        return None

    def query(self, method: str, path: str) -> set[str]:
        """Names of its query parameters."""
        return {one.arg for one in self.routes[method, path].args.args} - {"obj", "request", "tokenizer_manager"}

    def methods(self, path: str, owner: str, names: tuple[str, ...], space: dict[str, Any]) -> dict[str, Any]:
        """Some methods of a class as functions, their globals being *space*."""
        [node] = [one for one in self.tree(path).body if isinstance(one, ast.ClassDef) and one.name == owner]
        picked: list[ast.stmt] = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name in names]
        return _run(picked, space)

    def functions(self, path: str, names: tuple[str, ...], space: dict[str, Any]) -> dict[str, Any]:
        """Some functions and classes of a module, their globals being *space*."""
        kinds = (ast.FunctionDef, ast.ClassDef)
        return _run([one for one in self.tree(path).body if isinstance(one, kinds) and one.name in names], space)

    def unpickle(self, data: bytes) -> Any:
        """What SGLang reads in these bytes, with its own unpickler."""
        names = ("SafeUnpickler", "_safe_load_torch_storage")
        found = self.functions("utils/common.py", names, {"pickle": pickle, "io": io, "torch": torch})
        return found["SafeUnpickler"](io.BytesIO(data)).load()

    def generate_contract(self, folder: Path) -> ModuleType:
        """The decoder of ``/generate`` bodies that its schema generates."""
        path = folder / "api_types.py"
        path.write_bytes(self._wheel.read("sglang/api/v1/api_types.py"))
        spec = importlib.util.spec_from_file_location("sglang_api_types", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["sglang_api_types"] = module
        spec.loader.exec_module(module)
        return module


def _routes(decorator: ast.expr) -> set[tuple[str, str]]:
    if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Attribute) or not decorator.args:
        return set()
    path, kind = decorator.args[0], decorator.func.attr
    if not isinstance(path, ast.Constant) or not isinstance(path.value, str):
        return set()
    if kind in {"get", "post", "put"}:
        return {(kind.upper(), path.value)}
    methods = [one.value for one in decorator.keywords if one.arg == "methods"]
    return {(method, path.value) for one in methods for method in ast.literal_eval(one)}


def _run(statements: list[ast.stmt], space: dict[str, Any]) -> dict[str, Any]:
    statements = copy.deepcopy(statements)
    for one in ast.walk(ast.Module(statements, [])):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            one.returns = None
            for argument in (*one.args.args, *one.args.kwonlyargs):
                argument.annotation = None
    held = dict(space)
    exec(compile(ast.Module(statements, []), "sglang", "exec"), held)  # noqa: S102 - the package that is looked at
    return held
