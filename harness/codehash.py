"""The code hash: what a number was computed by, so that a changed formula does not pass for the old one.

Over the syntax trees, without docstrings and comments, of the files that make up a variant, the suite, and every module
of this project that they import, however far down. Left out is what computes no number: what plans, stores, reads or
shows, and the `SUITE` declaration itself, whose settings are part of the case.
"""

import ast
import hashlib
import importlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PROJECT = "attnbench"
# what plans, names, stores, reads or shows; data sets have a hash of their own
UNHASHED = {
    "attnbench.harness.costs",
    "attnbench.harness.data.cache",
    "attnbench.harness.data.catalogue",
    "attnbench.harness.data.fetch",
    "attnbench.harness.destination",
    "attnbench.harness.environment",
    "attnbench.harness.errors",
    "attnbench.harness.exchange",
    "attnbench.harness.metrics",
    "attnbench.harness.rowfile",
    "attnbench.harness.rows",
    "attnbench.harness.spec",
    "attnbench.variants.errors",
    "attnbench.variants.names",
    "attnbench.variants.registry",
}
UNHASHED_FOLDERS = ("attnbench.harness.migrations", "attnbench.harness.store", "attnbench.reports")


def code_hash(files: Iterable[Path]) -> str:
    """A hash of `files` and of all they import from this project: 16 hexadecimal digits."""
    found: set[Path] = set()
    todo = {path.resolve() for path in files}
    while todo:
        path = todo.pop()
        found.add(path)
        todo |= _imported(path) - found
    # by the name of each file and not its folder, so that the same code hashes alike on every machine
    digests = sorted(f"{path.stem} {_digest(path)}" for path in found)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(_text(_tree(path)).encode()).hexdigest()


@cache
def _imported(path: Path) -> frozenset[Path]:
    """The files of this project that a file imports, at its top or inside a function."""
    return frozenset(origin for name in _names(_tree(path)) if (origin := _origin(name)))


def _tree(path: Path) -> ast.Module:
    """The syntax tree of a file without docstrings and without the declaration of its suite."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = node.body[int(ast.get_docstring(node, clean=False) is not None) :]
    tree.body = [statement for statement in tree.body if not _declares_suite(statement)]
    return tree


def _declares_suite(statement: ast.stmt) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "SUITE" for target in targets)


def _text(node: object) -> str:
    """A syntax tree as text. Empty fields are left out: which of them there are differs between versions of Python."""
    if isinstance(node, list):
        return f"[{','.join(map(_text, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = [f"{name}={_text(value)}" for name, value in ast.iter_fields(node) if value is not None and value != []]
    return f"{type(node).__name__}({','.join(parts)})"


def _names(tree: ast.Module) -> Iterator[str]:
    """Every name that may be a module's: `from a import b` can mean a.b or b of a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _origin(name: str) -> Path | None:
    """The file of a module of this project that computes; None for all other names. Imports nothing but its package."""
    project, *rest = name.split(".")
    if project != PROJECT or not rest or name in UNHASHED:
        return None
    if any(name == folder or name.startswith(f"{folder}.") for folder in UNHASHED_FOLDERS):
        return None
    folder, *inside = rest
    base = Path(next(iter(importlib.import_module(f"{PROJECT}.{folder}").__path__))).joinpath(*inside)
    module, package = base.with_name(f"{base.name}.py"), base / "__init__.py"
    return next((path.resolve() for path in (module, package) if inside and path.is_file()), None)
