"""The code hash changes with what computes a number, and with nothing else."""

import ast
import importlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attnbench.harness import codehash
from attnbench.harness.codehash import code_hash

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("variants", "harness", "suites", "reports")
CACHES = (codehash._digest, codehash._imported, codehash._origin)


def forget() -> None:
    for cached in CACHES:
        cached.cache_clear()


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's files, where a test may change them."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


class Sources:
    """A copy of the project that `attnbench` is found in, and hashes of what is there now."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy
        self.before: dict[Path, str] = {}

    def hash(self, suite: str = "capacity", *variant: str | Path) -> str:
        """The hash of a suite with a variant (`delta` if none is given)."""
        forget()
        parts = variant or ("variants/compose.py", "variants/delta.py", "variants/elu1.py", "variants/sum_norm.py")
        return code_hash([self.copy / "suites" / f"{suite}.py", *(self.copy / part for part in parts)])

    def change(self, file: str, old: str, new: str) -> None:
        """Replace the first `old` in a file."""
        path = self.copy / file
        text = path.read_text(encoding="utf-8")
        assert old in text, file
        self.before.setdefault(path, text)
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def append(self, file: str, line: str) -> None:
        """Add a line to the end of a file."""
        path = self.copy / file
        text = path.read_text(encoding="utf-8")
        self.before.setdefault(path, text)
        path.write_text(f"{text}\n{line}\n", encoding="utf-8")

    def restore(self) -> None:
        for path, text in self.before.items():
            path.write_text(text, encoding="utf-8")


@pytest.fixture
def sources(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sources]:
    for folder in FOLDERS:
        monkeypatch.setattr(importlib.import_module(f"attnbench.{folder}"), "__path__", [str(copied / folder)])
    made = Sources(copied)
    yield made
    made.restore()
    forget()


def test_a_hash_is_sixteen_hexadecimal_digits_that_do_not_hang_on_the_order_of_files(sources: Sources) -> None:
    first = sources.hash("capacity", "variants/delta.py", "variants/elu1.py")
    assert len(first) == 16
    assert int(first, 16)
    assert sources.hash("capacity", "variants/elu1.py", "variants/delta.py") == first


def test_a_hash_does_not_hang_on_where_the_project_lies(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = sources.hash()
    for folder in FOLDERS:
        monkeypatch.setattr(importlib.import_module(f"attnbench.{folder}"), "__path__", [str(ROOT / folder)])
    assert Sources(ROOT).hash() == copied


COMPUTES = [
    "variants/delta.py",
    "variants/elu1.py",
    "variants/compose.py",
    "variants/contract.py",
    "suites/capacity.py",
    "suites/tasks/associative.py",
    "harness/lab.py",
    "harness/seeds.py",
    "harness/training.py",
]
COMPUTES_NOTHING = [
    "variants/registry.py",
    "variants/names.py",
    "variants/errors.py",
    "variants/dpfp.py",
    "suites/rewrite.py",
    "harness/__main__.py",
    "harness/runner.py",
    "harness/spec.py",
    "harness/rows.py",
    "harness/metrics.py",
    "harness/errors.py",
    "harness/store/__init__.py",
    "harness/store/writing.py",
    "reports/tables.py",
]


@pytest.mark.parametrize("file", COMPUTES)
def test_a_changed_line_in_what_computes_the_number_changes_the_hash(sources: Sources, file: str) -> None:
    before = sources.hash()
    sources.append(file, "CHANGED = 1")
    assert sources.hash() != before


@pytest.mark.parametrize("file", COMPUTES_NOTHING)
def test_a_changed_line_elsewhere_does_not(sources: Sources, file: str) -> None:
    before = sources.hash()
    sources.append(file, "CHANGED = 1")
    assert sources.hash() == before


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("harness/data/corpus.py", True),
        ("harness/data/ngrams.py", True),
        ("harness/models/decoder.py", True),
        # what the text is, the data hash says
        ("harness/data/catalogue.py", False),
        ("harness/data/fetch.py", False),
        ("harness/data/cache.py", False),
    ],
)
def test_what_is_made_of_a_text_counts_and_where_it_came_from_does_not(
    sources: Sources, file: str, counts: bool
) -> None:
    before = sources.hash("language_modelling")
    sources.append(file, "CHANGED = 1")
    assert (sources.hash("language_modelling") != before) == counts


def test_the_declaration_of_the_suite_does_not_count_because_its_settings_are_in_the_case(sources: Sources) -> None:
    before = sources.hash()
    sources.change("suites/capacity.py", 'title="Retrieval capacity"', 'title="Capacity"')
    sources.change("suites/capacity.py", "timeout_seconds=60", "timeout_seconds=61")
    assert sources.hash() == before
    sources.change("suites/capacity.py", "SUITE = ", "SUITE: Suite = ")
    assert sources.hash() == before


def rewritten(text: str) -> str:
    """A file with every comment and docstring gone and every line spelled anew."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant("Another docstring."))
    return "# another comment\n" + ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize("file", ["variants/delta.py", "harness/training.py", "suites/tasks/associative.py"])
def test_docstrings_comments_and_layout_do_not_count(sources: Sources, file: str) -> None:
    before = sources.hash()
    text = (sources.copy / file).read_text(encoding="utf-8")
    sources.change(file, text, rewritten(text))
    assert (sources.copy / file).read_text(encoding="utf-8") != text
    assert sources.hash() == before


def test_a_text_that_is_no_docstring_counts(sources: Sources) -> None:
    sources.append("harness/lab.py", 'def said():\n    x = 1\n    "a text"')
    before = sources.hash()
    sources.change("harness/lab.py", '"a text"', '"another text"')
    assert sources.hash() != before


def drop_in(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(body, encoding="utf-8")
    return path


def test_a_file_of_ones_own_counts_wherever_it_lies(sources: Sources, tmp_path: Path) -> None:
    here = drop_in(tmp_path / "here", "mine.py", "X = 1\n")
    there = drop_in(tmp_path / "there", "mine.py", "X = 1  # the same\n")
    other = drop_in(tmp_path / "other", "mine.py", "X = 2\n")
    renamed = drop_in(tmp_path / "there", "yours.py", "X = 1\n")
    assert sources.hash("capacity", here) == sources.hash("capacity", there)
    assert len({sources.hash("capacity", one) for one in (here, other, renamed)}) == 3


@pytest.mark.parametrize(
    "statement",
    [
        "from attnbench.variants.delta import WRITE_RULE",
        "from attnbench.variants import delta",
        "import attnbench.variants.delta",
        "def form():\n    from attnbench.variants.delta import WRITE_RULE",
    ],
)
def test_what_a_file_of_ones_own_imports_counts_too(sources: Sources, tmp_path: Path, statement: str) -> None:
    path = drop_in(tmp_path / "here", "mine.py", statement + "\n")
    before = sources.hash("capacity", path)
    sources.append("variants/delta.py", "CHANGED = 1")
    assert sources.hash("capacity", path) != before


def test_a_file_that_is_called_like_one_of_the_project_does_not_hide_it(sources: Sources, tmp_path: Path) -> None:
    path = drop_in(tmp_path / "variants", "delta.py", "from attnbench.variants.delta import WRITE_RULE\n")
    before = sources.hash("capacity", path)
    sources.append("variants/delta.py", "CHANGED = 1")
    changed = sources.hash("capacity", path)
    path.write_text(path.read_text(encoding="utf-8") + "X = 1\n", encoding="utf-8")
    assert len({before, changed, sources.hash("capacity", path)}) == 3


def test_a_file_may_import_what_is_no_module_of_the_project(sources: Sources, tmp_path: Path) -> None:
    body = "import os.path, torch\nfrom attnbench import variants\nfrom attnbench.variants.nothing import at_all\n"
    assert len(sources.hash("capacity", drop_in(tmp_path / "here", "mine.py", body))) == 16


def test_a_hash_hangs_on_no_version_of_python() -> None:
    # type_params is a field since 3.12, and empty here; type_comment is never filled
    assert codehash._text(ast.parse("def f(x):\n    return x + 1")) == (
        "Module(body=[FunctionDef(name='f',args=arguments(args=[arg(arg='x')]),"
        "body=[Return(value=BinOp(left=Name(id='x',ctx=Load()),op=Add(),right=Constant(value=1)))])])"
    )
    # a None that was written is not an empty field
    empty: Callable[[str], str] = lambda text: codehash._text(ast.parse(text))  # noqa: E731
    assert empty("def f(): return") != empty("def f(): return None")
