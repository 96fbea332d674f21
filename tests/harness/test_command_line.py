"""The command line: what bad input gets (one message, exit code 2, nothing written), and what each command says."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from commands import Commands

from attnbench.harness.rows import Attempt, Identity, Measurement, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Run, Store
from attnbench.suites import capacity

Attnbench = Callable[..., tuple[int, str, str]]


def refused(answer: tuple[int, str, str], message: str) -> None:
    """The answer to a mistake: exit code 2 and one line, which says this."""
    code, out, err = answer
    assert (code, out) == (2, ""), err
    assert re.fullmatch(rf"attnbench: {message}\n", err), err


# Bad input.


RUN_MISTAKES = {
    "capcity": (r"UnknownSuite: no suite 'capcity'\. Known: capacity, .*\. Did you mean 'capacity'\?"),
    "--scale quik": r"UnknownScale: no scale 'quik'\. Known: paper, quick, smoke, standard\. Did you mean 'quick'\?",
    "--device gpu": r"UnknownDevice: no device 'gpu'\. Known: cpu, and for a GPU cuda or cuda:N\.",
    "capacity --variant dleta": r"UnknownVariant: no variant 'dleta'\. Known: .*\. Did you mean 'delta'\?",
    "capacity --variant linear+delta": r"UnknownVariant: 'linear\+delta' is spelled 'delta'\.",
    "capacity --variant dpfp-nu0": r"BadParameter: dpfp needs nu .* from 1 up, got nu=0\. Use 'dpfp-nu1'\.",
    "capacity --variant dpfp-nu64": r"BadParameter: dpfp needs nu from 1 to 63 at K=64 .*, got nu=64\. Use 'dpfp-nu63'\.",
    "capacity --variant performer-m0": r"BadParameter: performer needs m .* from 1 up, got m=0\. Use 'performer-m1'\.",
    "capacity --variant nothing.py": r"BadVariant: no variant file nothing\.py\.",
    "capacity --form recurent": r"UnknownForm: none of the variants asked for has a form 'recurent'\. Known: .* Did you mean 'recurrent'\?",
    "capacity --set pairs=0": r"BadParameter: setting pairs is a number above 0, got 0\. Use 1\.",
    "capacity --set pairs=-5": r"BadParameter: setting pairs is a number above 0, got -5\. Use 1\.",
    "capacity --set pairs=x": r"BadParameter: setting pairs is a whole number, such as 20; got 'x'\.",
    "capacity --set pairs": r"BadParameter: a setting is NAME=VALUE.*; got 'pairs'\.",
    "capacity --only nosuch=1": r"BadParameter: no suite asked for has a setting 'nosuch'\. Known: .*pairs.*",
    "capacity --only pairs": r"BadParameter: a setting is NAME=VALUE.*; got 'pairs'\.",
    "capacity --only pairs=7": r"BadParameter: no point of the grids has pairs=7, and --only keeps some of them\. Known: .*",
    "capacity --set nosuch=1": r"BadParameter: no suite asked for has a setting 'nosuch'\. Known: .*pairs.*",
    "speed --set timing=benchmark": r"BadParameter: setting timing says who held the clock, so it cannot be chosen: .*",
    "language_modelling --set data=wiki-mni": r"UnknownData: no data set 'wiki-mni'.*",
    "--seed -1": r"BadParameter: a seed is a whole number from 0 to 9223372036854775807, got -1\. Use 0\.",
    "--seed 9223372036854775808": r"BadParameter: a seed is a whole number from 0 to 9223372036854775807, got 9223372036854775808\. Use 0\.",
    "-j -1": r"BadParameter: --workers is a number from 0 up, got -1\. Use 0 for one a processor\.",
    "--timeout 0": r"BadParameter: a timeout is a number of seconds above 0, got 0\. Use 600\.",
    "--timeout nan": r"BadParameter: a timeout is a number of seconds above 0, got nan\. Use 600\.",
    "--rerun sometimes": r"BadParameter: --rerun takes missing, failed or always, got 'sometimes'\. .*",
    "--report .": r"UserError: a file was needed for the report, but \. is a folder\. Try attnbench\.html\.",
    "--report gone/r.html": r"UserError: no folder gone for the report gone/r\.html\. Make it first: mkdir -p gone",
}  # fmt: skip


@pytest.mark.parametrize("arguments", RUN_MISTAKES)
def test_a_mistake_in_what_is_to_be_run_is_told_and_nothing_is_written(
    attnbench: Attnbench, tmp_path: Path, arguments: str
) -> None:
    refused(attnbench("run", *arguments.split()), RUN_MISTAKES[arguments])
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_here_is_told(attnbench: Attnbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(
        attnbench("run", "--device", "cuda"), r"UnknownDevice: device 'cuda' is not here: torch sees no CUDA device.*"
    )


OTHER_MISTAKES = {
    "check dleta": r"UnknownVariant: no variant 'dleta'\. .* Did you mean 'delta'\?",
    "check delta --form sdpa": r"UserError: delta has no form 'sdpa'; it has .*recurrent.*",
    "check --device gpu": r"UnknownDevice: no device 'gpu'\. Known: cpu, and for a GPU cuda or cuda:N\.",
    "ls variant": r"UserError: nothing called 'variant' to list\. Known: .*\. Did you mean 'variants'\?",
    "data fetch web-bibel": r"UnknownData: no data set 'web-bibel'.* Did you mean 'web-bible'\?.*",
    "plan capcity": r"UnknownSuite: no suite 'capcity'\. .* Did you mean 'capacity'\?",
    "plan --tflops 0": r"BadParameter: a throughput is a number of TFLOP/s above 0, got 0\. Use 50\.",
    "plan --tflops 1 --probe": r"BadParameter: --tflops gives the throughput and --probe measures it\. Use one of them\.",
    "plan speed --set timing=benchmark": r"BadParameter: setting timing says who held the clock, so it cannot be chosen: .*",
    "show": r"BadDatabase: no database at attnbench\.db; `attnbench run` makes one\.",
    "report --no-measured": r"BadDatabase: no database at attnbench\.db; `attnbench run` makes one\.",
    "report --db gone.db": r"BadDatabase: no database at gone\.db; `attnbench run` makes one\.",
    "verdicts --no-measured": r"BadDatabase: no database at attnbench\.db; `attnbench run` makes one\.",
    "verdicts --db gone.db": r"BadDatabase: no database at gone\.db; `attnbench run` makes one\.",
    "ls runs": r"BadDatabase: no database at attnbench\.db; `attnbench run` makes one\.",
    "db upgrade": r"BadDatabase: no database at attnbench\.db; `attnbench run` makes one\.",
}


@pytest.mark.parametrize("arguments", OTHER_MISTAKES)
def test_a_mistake_in_any_other_command_is_told_and_nothing_is_written(
    attnbench: Attnbench, tmp_path: Path, arguments: str
) -> None:
    refused(attnbench(*arguments.split()), OTHER_MISTAKES[arguments])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", ["run --sale smoke", "run --seed x", "run -j many", "run --timeout soon", "runs", "data", "--nosuch"]
)
def test_an_option_or_command_that_does_not_exist_is_a_usage_error(
    attnbench: Attnbench, tmp_path: Path, arguments: str
) -> None:
    code, _, err = attnbench(*arguments.split())
    assert code == 2
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


VARIANT_FILES = {
    "import nowhere\n": r"broken\.py does not import: ModuleNotFoundError: No module named 'nowhere'",
    "x = (\n": r"broken\.py does not import: SyntaxError: .*",
    "x = 1\n": r"broken\.py has no VARIANT; it needs VARIANT = Variant\(\.\.\.\)\.",
    "VARIANT = 3\n": r"VARIANT in broken\.py must be a Variant, got int\.",
    "from attnbench.variants.contract import Variant\nVARIANT = Variant('mine', 'o = v', 'none')\n":
        r"broken\.py does not import: TypeError: .*missing .*'forms'.*",
    "from attnbench.variants.contract import Variant\nVARIANT = Variant('mine', 'o = v', 'none', {}, lambda K, V, T: 0)\n":
        r"variant 'mine' needs a form 'recurrent', the oracle for all others; got \[\]\.",
}  # fmt: skip


@pytest.mark.parametrize("command", ["run capacity --variant", "check"])
@pytest.mark.parametrize("content", VARIANT_FILES)
def test_a_variant_file_that_is_no_variant_is_told(
    attnbench: Attnbench, tmp_path: Path, content: str, command: str
) -> None:
    Path("broken.py").write_text(content, encoding="utf-8")
    refused(attnbench(*command.split(), "broken.py:VARIANT"), f"BadVariant: {VARIANT_FILES[content]}")
    assert not list(tmp_path.glob("*.db"))


SMALL = ("capacity", "--variant", "linear", "--scale", "smoke")


def test_a_database_that_is_a_folder_is_told(attnbench: Attnbench) -> None:
    Path("results").mkdir()
    told = r"BadDatabase: results is a folder; a database is a file, for example results/attnbench\.db\."
    refused(attnbench("run", *SMALL, "--db", "results"), told)
    refused(attnbench("show", "--db", "results"), told)
    assert list(Path("results").iterdir()) == []


def test_a_database_in_a_folder_that_is_not_there_is_told(attnbench: Attnbench, tmp_path: Path) -> None:
    told = (
        rf"BadDatabase: no folder {tmp_path}/gone for the database gone/x\.db\. Make it first: mkdir -p {tmp_path}/gone"
    )
    refused(attnbench("run", *SMALL, "--db", "gone/x.db"), told)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("run", *SMALL), ("show",), ("report",)])
def test_a_file_that_is_no_database_is_told_and_left_alone(attnbench: Attnbench, command: tuple[str, ...]) -> None:
    Path("notes.txt").write_text("my notes, which nobody may touch", encoding="utf-8")
    told = r"BadDatabase: notes\.txt is not a database of attnbench: it is not an SQLite file\. Give another one with --db\."
    refused(attnbench(*command, "--db", "notes.txt"), told)
    assert Path("notes.txt").read_text(encoding="utf-8") == "my notes, which nobody may touch"


def test_the_database_of_another_program_is_told_and_left_alone(attnbench: Attnbench, tmp_path: Path) -> None:
    with closing(sqlite3.connect("photos.db")) as other, other:
        other.execute("CREATE TABLE photo (name TEXT)")
    before = Path("photos.db").read_bytes()
    told = r"BadDatabase: photos\.db is not a database of attnbench: another program made it \(its tables: photo\)\..*"
    refused(attnbench("run", *SMALL, "--db", "photos.db"), told)
    assert Path("photos.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["photos.db"]


def test_a_password_in_a_database_url_is_not_shown(attnbench: Attnbench) -> None:
    code, out, err = attnbench("run", *SMALL, "--db", "mysql://me:secret@host/name")
    assert (code, out) == (2, "")
    assert "mysql://me:***@host/name is neither SQLite nor PostgreSQL" in err
    assert "secret" not in err


def test_the_database_can_be_given_in_the_environment(attnbench: Attnbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNBENCH_DB", "mine.db")
    refused(attnbench("show"), r"BadDatabase: no database at mine\.db; `attnbench run` makes one\.")


# What commands say.


@pytest.fixture
def database(attnbench: Attnbench, tmp_path: Path) -> Path:
    """A database with one run of two cases."""
    path = tmp_path / "attnbench.db"
    with Store.open(path, writes=True) as store:
        store.begin_run(Run("20260101-000000-abcdef", "attnbench run capacity", datetime(2026, 1, 1, tzinfo=UTC)))
        store.record_suite(capacity.SUITE)
        for variant, status in (("delta", Status.OK), ("linear", Status.ERROR)):
            case = Case("capacity", variant, "readout", Point(pairs=20), 0, "quick")
            measured = (Measurement("retrieval_loss", 0.25),) if status is Status.OK else ()
            attempt = Attempt(case, Identity("", ""), status, "it broke" if not measured else "", measurements=measured)
            store.append("20260101-000000-abcdef", attempt, owner="me")
        store.end_run("20260101-000000-abcdef", "failed")
    return path


def test_help_names_every_command(attnbench: Attnbench) -> None:
    code, out, _ = attnbench("--help")
    assert code == 0
    for command in (
        "run",
        "plan",
        "check",
        "ls",
        "show",
        "verdicts",
        "compare",
        "report",
        "export",
        "import",
        "data",
        "db",
        "new",
    ):
        assert re.search(rf"^ +{command} ", out, re.MULTILINE), command


def test_without_arguments_there_is_help(attnbench: Attnbench) -> None:
    code, out, err = attnbench()
    assert "Usage: " in out + err
    assert code in (0, 2)


def test_the_version_is_that_of_the_package(attnbench: Attnbench) -> None:
    code, out, _ = attnbench("--version")
    assert (code, out) == (0, f"attnbench {version('attnbench')}\n")


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("variants", ["softmax", "dpfp-nu1+delta", "recurrent"]),
        ("suites", ["capacity", "How many pairs fit into a memory of fixed size?", "smoke quick"]),
        ("metrics", ["retrieval_loss", "tokens/s", "higher"]),
        ("data", ["web-bible", "python-manual"]),
    ],
)
def test_what_there_is_is_listed(attnbench: Attnbench, tmp_path: Path, what: str, names: list[str]) -> None:
    code, out, _ = attnbench("ls", what)
    assert code == 0
    for name in names:
        assert name in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("database")
def test_runs_are_listed_with_their_state_and_how_their_cases_ended(attnbench: Attnbench) -> None:
    code, out, _ = attnbench("ls", "runs")
    assert code == 0
    line = next(line for line in out.splitlines() if "20260101-000000-abcdef" in line)
    assert re.search(r"failed +2026-01-01 00:00 +1 ok, 1 error|failed +2026-01-01 00:00 +1 error, 1 ok", line)
    assert line.rstrip().endswith("attnbench run capacity")


@pytest.mark.usefixtures("database")
def test_tables_are_shown_and_the_page_is_written(attnbench: Attnbench) -> None:
    code, out, _ = attnbench("show", "capacity")
    assert code == 0
    assert "delta" in out
    assert "error" in out
    code, out, _ = attnbench("report", "-o", "page.html")
    assert (code, out) == (0, "report: page.html\n")
    assert "<html" in Path("page.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("database")
def test_two_selections_are_compared_and_a_mistake_in_one_is_told(attnbench: Attnbench) -> None:
    code, out, _ = attnbench("compare", "run=20260101-000000-abcdef", "variant=delta")
    assert code == 0
    assert "retrieval loss" in out
    refused(attnbench("compare", "variant=delta", "varient=delta"), r"BadParameter: no key 'varient' to select by\. .*")
    refused(attnbench("compare", "delta", "variant=delta"), r"BadParameter: a selector is KEY=VALUE.*; got 'delta'\.")


@pytest.mark.usefixtures("database")
def test_a_database_that_is_new_enough_is_left_as_it_is(attnbench: Attnbench) -> None:
    code, out, _ = attnbench("db", "upgrade")
    assert code == 0
    assert re.fullmatch(r"attnbench\.db was up to date \(\d{4}\)\n", out)


def test_checks_are_told_one_a_line_and_failures_make_the_exit_code_1(attnbench: Attnbench) -> None:
    before = torch.get_num_threads()
    good = attnbench("check", "fwp1991", "--form", "recurrent")
    Path("leaks.py").write_text(
        "from attnbench.variants.contract import Form, Variant\n"
        "def recurrent(q, k, v, memory=None):\n"
        "    return v.flip(1), {}\n"
        "VARIANT = Variant('leaks', 'o = v', 'none', {'recurrent': Form(recurrent)}, lambda K, V, T: 0)\n",
        encoding="utf-8",
    )
    bad = attnbench("check", "leaks.py:VARIANT")
    torch.set_num_threads(before)
    assert good[0] == 0
    *lines, total = good[1].splitlines()
    assert all(re.match(r"(passed|declared|skipped) +fwp1991/recurrent \w+", line) for line in lines)
    assert re.fullmatch(rf"{len(lines)} checks of 1 variants?: \d+ passed.*", total)
    assert bad[0] == 1
    assert re.search(r"^failed +leaks/recurrent causality: ", bad[1], re.MULTILINE)


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("arguments", ["ls metrics", "db upgrade"])
def test_a_reader_who_hangs_up_ends_a_command_without_a_traceback(tmp_path: Path, arguments: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "attnbench.harness", *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.usefixtures("attnbench")
def test_a_form_that_only_some_variants_have_is_skipped_for_the_others(commands: Commands, tmp_path: Path) -> None:
    arguments = (
        "--variant",
        "linear",
        "--variant",
        "softmax",
        "--form",
        "sdpa",
        "--scale",
        "smoke",
        "--only",
        "phase=prefill",
    )
    code, said = commands.run("run", "memory", *arguments, folder=tmp_path)
    assert code == 0
    assert said.endswith("ended: 1 ok, 1 skipped\n")
    with Store.open(tmp_path / "attnbench.db", writes=False) as store:
        skipped = [row.reason for row in store.rows() if row.status is Status.SKIPPED]
    (reason,) = skipped
    assert re.fullmatch(r"linear has no form 'sdpa'; it has .*chunkwise, .*parallel, recurrent, step.*\.", reason)


def test_the_report_of_a_run_is_written_at_its_end_even_if_a_case_failed(commands: Commands, tmp_path: Path) -> None:
    arguments = ("fake", "--set", "does=ends well,raises", "--scale", "smoke", "--report", "page.html")
    command = commands.start("run", *arguments, folder=tmp_path)
    assert (command.wait(), command.output()) == (1, "report: page.html\n")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "the fake is broken" in page
