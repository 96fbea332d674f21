"""The README is kept true: its file of a variant passes its checks, its tables name what there is, its commands exist."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from attnbench.harness.checks import check
from attnbench.suites import find_suites
from attnbench.variants import find, listed

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_variant_in_the_readme_passes_its_checks(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    path = tmp_path / "fading.py"
    path.write_text(code, encoding="utf-8")
    findings = list(check(find(f"{path}:VARIANT")))
    assert len(findings) > 10
    assert [finding for finding in findings if finding.state == "failed"] == []


def test_every_listed_variant_and_every_suite_is_in_the_readme() -> None:
    words = set(re.findall(r"`([^`\n]+)`", README))
    shown = {name for name in listed() if name in words}
    # a composition of parts that are all in the table needs no line of its own
    assert set(listed()) - shown <= {"performer-m64+scaled", "performer-m64+scaled+delta", "dpfp-nu1", "dpfp-nu3"}
    for suite in find_suites().values():
        assert f"| `{suite.name}` | {suite.question} |" in README


def test_every_name_in_the_table_of_variants_is_legal() -> None:
    table = README[README.index("## Variants") : README.index("A file of your own")]
    names = [
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]
    assert len(names) > 10
    for name in names:
        find(name)


@pytest.mark.parametrize(
    "command",
    sorted(
        set(
            re.findall(
                r"attnbench (run|plan|check|kernels|ls|show|report|verdicts|export|import|new variant|data fetch)",
                README,
            )
        )
    ),
)
def test_every_command_in_the_readme_exists(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "attnbench.harness", *command.split(), "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_figure_in_the_readme_is_what_the_documented_command_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = re.findall(r"!\[[^\]]+\]\((reports/drawn/[^)]+\.svg)\)", README)
    (command,) = re.findall(r"^    (attnbench report --figures figures)\b", README, flags=re.MULTILINE)
    monkeypatch.delenv("ATTNBENCH_DB", raising=False)
    words = [sys.executable, "-m", "attnbench.harness", *command.split()[1:]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept = Path(__file__).parent.parent / shown
    drawn = tmp_path / "figures" / kept.name
    # another matplotlib may place a glyph otherwise, but says the same; where it is older, run the command again
    assert _said(drawn) == _said(kept), f"{shown} is not what `{command}` draws: copy its file there"


def _said(svg: Path) -> tuple[list[str | None], int]:
    """The texts of a figure, and how many points and lines it has."""
    elements = list(ElementTree.parse(svg).iter())
    return [one.text for one in elements if one.tag.endswith("}text")], sum(
        one.tag.endswith("}use") for one in elements
    )
