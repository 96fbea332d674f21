"""`attnbench export` and `attnbench import`: what they say, what they refuse, and what they leave as it was."""

import csv
import lzma
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from exported import CASE, CONTENTS, FACTS, RUN, START, attempt, refused

from attnbench.harness.rowfile import read_rows, write_rows
from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.harness.store import (
    Contents,
    Store,
    writing,
)


@pytest.fixture
def filled(database):
    with Store.open(database, writes=True) as store:
        second = replace(RUN, id="second", started_at=START + timedelta(days=1))
        rewrite = attempt(0, run_id="second")
        rewrite = replace(
            rewrite, case=replace(CASE, suite="rewrite", variant="linear", scale="smoke", point=Point(keys=5))
        )
        store.add(Contents((RUN, second), (FACTS,), (*CONTENTS.attempts, rewrite)))
    return Path(database)


def test_export_and_import_say_what_they_did_and_change_nothing_they_read(attnbench, filled, tmp_path):
    before = filled.read_bytes()
    code, out, _ = attnbench("export")
    assert code == 0
    assert re.fullmatch(r"attnbench\.jsonl\.xz: 4 attempts of 2 runs, [\d.]+ kB\n", out)
    assert filled.read_bytes() == before
    first = (0, "attnbench.jsonl.xz: 4 attempts and 2 runs added\n", "")
    assert attnbench("import", "attnbench.jsonl.xz", "--db", "other.db") == first
    again = (0, "attnbench.jsonl.xz: 0 attempts and 0 runs added; 4 attempts known before\n", "")
    assert attnbench("import", "attnbench.jsonl.xz", "--db", "other.db") == again
    assert attnbench("export", "-o", "again.jsonl.xz", "--db", "other.db")[0] == 0
    assert (tmp_path / "again.jsonl.xz").read_bytes() == (tmp_path / "attnbench.jsonl.xz").read_bytes()


@pytest.fixture
def named(database):
    """A database that says who measured: on which computer, in whose folder, with which program there."""
    machine = {"node": "adas-laptop", **RUN.machine}
    command = "attnbench run --db /home/ada/bench.db -v /home/ada/mine.py:VARIANT"
    run = replace(RUN, command=command, machine=machine, environment={"TORCH_HOME": "/home/ada/torch"})
    broken = attempt(
        status=Status.ERROR, reason="no file '/home/ada/x.txt'", facts={"address": "/home/ada/mine.py:VARIANT"}
    )
    with Store.open(database, writes=True) as store:
        store.add(Contents((run,), (FACTS,), (broken,)))
    return Path(database)


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize("form", ["rows", "csv"])
def test_an_export_names_no_computer_no_user_and_no_folder(attnbench, tmp_path, form):
    assert attnbench("export", "--format", form, "-o", "out")[0] == 0
    content = (tmp_path / "out").read_bytes()
    said = (lzma.decompress(content) if form == "rows" else content).decode()
    assert not re.search(r"ada|home|/\w+/", said)
    assert "mine.py:VARIANT" in said


def test_the_file_can_be_added_where_it_came_from_and_comes_out_of_another_database_unchanged(
    attnbench, named, tmp_path
):
    assert attnbench("export")[0] == 0
    known = "attnbench.jsonl.xz: 0 attempts and 0 runs added; 1 attempt known before\n"
    assert attnbench("import", "attnbench.jsonl.xz") == (0, known, "")
    with Store.open(named, writes=False) as store:
        assert store.runs()[0].machine["node"] == "adas-laptop"
    assert attnbench("import", "attnbench.jsonl.xz", "--db", "other.db")[0] == 0
    assert attnbench("export", "--db", "other.db", "-o", "again.jsonl.xz")[0] == 0
    assert (tmp_path / "again.jsonl.xz").read_bytes() == (tmp_path / "attnbench.jsonl.xz").read_bytes()


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("chosen", "seeds", "runs"),
    [
        (["capacity"], [0, 1, 2], [RUN.id]),
        (["capacity", "rewrite"], [0, 0, 1, 2], [RUN.id, "second"]),
        (["--variant", "linear"], [0], ["second"]),
        (["--scale", "quick"], [0, 1, 2], [RUN.id]),
        (["--run", "second"], [0], ["second"]),
    ],
)
def test_what_is_named_is_exported_alone_with_its_runs(attnbench, tmp_path, chosen, seeds, runs):
    assert attnbench("export", *chosen)[0] == 0
    read = read_rows(tmp_path / "attnbench.jsonl.xz")
    assert sorted(tried.case.seed for tried in read.attempts) == seeds
    assert [run.id for run in read.runs] == runs


@pytest.mark.usefixtures("filled")
def test_a_csv_has_a_line_a_metric_and_a_column_a_setting(attnbench, tmp_path):
    code, out, _ = attnbench("export", "--format", "csv")
    assert code == 0
    assert re.fullmatch(r"attnbench\.csv: 4 attempts of 2 runs, [\d.]+ kB\n", out)
    with (tmp_path / "attnbench.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["suite"], line["point.pairs"], line["point.keys"], line["value"]) for line in lines] == [
        ("capacity", "20", "", "0.25"), ("capacity", "20", "", "0.25"), ("capacity", "20", "", ""), ("rewrite", "", "5", "0.25"),
    ]  # fmt: skip
    assert (lines[2]["status"], lines[2]["reason"], lines[2]["metric"]) == ("error", "it broke", "")
    assert (lines[0]["cpu"], lines[0]["is_dirty"], lines[0]["samples"]) == ("AMD EPYC", "True", "[0.25, 0.5]")


@pytest.mark.usefixtures("filled")
def test_a_file_whose_name_ends_in_csv_is_one(attnbench, tmp_path):
    assert attnbench("export", "-o", "mine.csv")[0] == 0
    assert (tmp_path / "mine.csv").read_text(encoding="utf-8").startswith("attempt_id,run_id,suite,")


EXPORT_MISTAKES = {
    "capacty": r"UnknownSuite: nothing is stored of suite 'capacty'\. Known: capacity, rewrite\. Did you mean 'capacity'\?",
    "rewrite capacty": r"UnknownSuite: nothing is stored of suite 'capacty'\. .*",
    "--variant dleta": r"UnknownVariant: nothing is stored of variant 'dleta'\. .* Did you mean 'delta'\?",
    "--scale paper": r"UnknownScale: nothing is stored of scale 'paper'\. Known: quick, smoke\..*",
    "--run secnd": r"UserError: nothing is stored of run 'secnd'\. .* Did you mean 'second'\?",
    "rewrite --scale quick": r"UserError: attnbench\.db holds no attempt of what was asked for: nothing to export\.",
    "--format parquet": r"BadParameter: --format takes rows or csv, got 'parquet'\. .*",
    "-o .": r"UserError: a file was needed for the export, but \. is a folder\. Try attnbench\.jsonl\.xz\.",
    "-o . --format csv": r"UserError: a file was needed for the export, but \. is a folder\. Try attnbench\.csv\.",
    "-o /dev/null": r"UserError: a file was needed for the export, but /dev/null is a device or a pipe\. Choose another with --output\.",
    "-o attnbench.db": r"UserError: attnbench\.db is a database, which the export would replace\. Choose another file with --output\.",
    "-o gone/rows.xz": r"UserError: no folder gone for the export gone/rows\.xz\. Make it first: mkdir -p gone",
    "--db gone.db": r"BadDatabase: no database at gone\.db; `attnbench run` makes one\.",
}


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("arguments", EXPORT_MISTAKES)
def test_a_mistake_in_what_is_to_be_exported_is_told_and_nothing_is_written(attnbench, tmp_path, arguments):
    refused(attnbench("export", *arguments.split()), EXPORT_MISTAKES[arguments])
    assert [path.name for path in tmp_path.iterdir()] == ["attnbench.db"]


def test_an_empty_database_has_nothing_to_export(attnbench, database, tmp_path):
    told = r"UserError: attnbench\.db holds no attempt of what was asked for: nothing to export\."
    refused(attnbench("export", "capacity"), told)
    assert [path.name for path in tmp_path.iterdir()] == [Path(database).name]


def test_a_folder_that_cannot_be_entered_is_told(attnbench, monkeypatch):
    def refuse(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refuse)
    told = r"UserError: theirs/rows\.xz cannot be written: Permission denied\. Choose another place with --output\."
    refused(attnbench("export", "-o", "theirs/rows.xz"), told)


def test_ctrl_c_keeps_the_files_that_were_named_and_nothing_of_the_next(attnbench, database, tmp_path, monkeypatch):
    write_rows(replace(CONTENTS, attempts=(attempt(0),)), tmp_path / "one.jsonl.xz")
    write_rows(replace(CONTENTS, attempts=(attempt(1), attempt(2))), tmp_path / "two.jsonl.xz")
    keep = writing._keep

    def stopped_at_the_third(connection, run_id, tried, *rest, **more):
        if tried.case.seed == 2:
            raise KeyboardInterrupt
        keep(connection, run_id, tried, *rest, **more)

    monkeypatch.setattr(writing, "_keep", stopped_at_the_third)
    assert attnbench("import", "one.jsonl.xz", "two.jsonl.xz") == (
        130,
        "one.jsonl.xz: 1 attempt and 1 run added\n",
        "attnbench: stopped; the files named above are stored, and the same command adds the others\n",
    )
    with Store.open(database, writes=False) as store:
        assert [tried.case.seed for tried in store.contents().attempts] == [0]


def test_a_folder_that_cannot_be_written_is_told_before_the_work(attnbench, monkeypatch):
    # root may write everywhere, so the system's answer is made up
    monkeypatch.setattr("os.access", lambda *_: False)
    told = r"UserError: the folder \. of the export attnbench\.jsonl\.xz cannot be written\. Choose another with --output\."
    refused(attnbench("export"), told)
