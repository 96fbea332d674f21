"""The code hash: what a number was computed by, so that a changed formula does not pass for the old one.

Over the syntax trees, without docstrings and comments, of the files that make up a variant, the suite, and every module
of this project that they import, however far down. Left out is what computes no number: what plans, stores, reads or
shows, and the `SUITE` declaration itself, whose settings are part of the case.
"""

import ast
import hashlib
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PREFIX = "attnbench."
UNHASHED = {
    "attnbench.variants",
    "attnbench.variants.errors",
    "attnbench.variants.names",
    "attnbench.variants.registry",
    "attnbench.harness",
    "attnbench.harness.errors",
    "attnbench.harness.metrics",
    "attnbench.harness.rows",
    "attnbench.harness.spec",
    "attnbench.suites",
}


def code_hash(files: Iterable[Path]) -> str:
    """A hash of `files` and of all they import from this project: 16 hexadecimal digits."""
    found: dict[str, Path] = {}
    todo = {_module_of(path): path for path in files}
    while todo:
        name, path = todo.popitem()
        if name in found:
            continue
        found[name] = path
        for imported in _imports(path):
            if imported not in found and imported not in UNHASHED and (origin := _origin(imported)):
                todo[imported] = origin
    # a file has the same name wherever it lies, so that the same code hashes alike on every machine
    digests = sorted(f"{name.rsplit('.', 1)[-1]} {_digest(path)}" for name, path in found.items())
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]


def _module_of(path: Path) -> str:
    """A name for a file: folder and stem, so that a module found by import and by path is the same."""
    return f"{PREFIX}{path.parent.name}.{path.stem}"


@cache
def _tree(path: Path) -> ast.Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:]
    tree.body = [one for one in tree.body if not (isinstance(one, ast.Assign) and _is_declaration(one))]
    return tree


def _is_declaration(statement: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "SUITE" for target in statement.targets)


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(ast.dump(_tree(path)).encode()).hexdigest()


@cache
def _imports(path: Path) -> frozenset[str]:
    """Modules of this project that the file imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(name for name in names if name.startswith(PREFIX))


@cache
def _origin(module: str) -> Path | None:
    """The file of a module, or None where the name is no module (a function imported from one)."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.origin is None or spec.origin == "frozen":
        return None
    return Path(spec.origin)
