"""Rows that come with attnbench: they fill what a database has not, never mix with what it has, and say where they are from."""

import io
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from attnbench.harness.errors import BadDatabase, UserError
from attnbench.harness.rowfile import read_rows, write_rows
from attnbench.harness.rows import Artefact, Identity, Series, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import (
    Contents,
    RunState,
    Store,
    StoredAttempt,
    StoredMeasurement,
    StoredRun,
    SuiteFacts,
)
from attnbench.harness.store.nameless import nameless
from attnbench.reports import measured
from attnbench.reports.measured import is_shipped, origins, overlaid, reading, shipped
from attnbench.reports.terminal import show
from attnbench.reports.write import write_report

START = datetime(2026, 1, 1, tzinfo=UTC)
HERE = StoredRun("here", "attnbench run", START, machine={"cpu": "my processor", "cores": 4}, state=RunState.FINISHED)
THERE = StoredRun(
    "there",
    "attnbench run capacity --scale paper",
    START,
    machine={"cpu": "their processor", "cores": 8, "usable_cores": 2},
    commit="abcdef0123456789",
    state=RunState.FINISHED,
    ended_at=START + timedelta(hours=1),
)
FACTS = SuiteFacts("capacity", "Capacity", "how many?", "paper", "pairs", ("retrieval_loss",))
CASE = Case("capacity", "linear", "chunkwise", Point(pairs=20), 0, "paper")


def attempt(run, loss=0.25, *, started=START, status=Status.OK, testbed="", series=(), artefacts=(), **case):
    number = (StoredMeasurement("retrieval_loss", loss, (), "1", "lower"),) if status is Status.OK else ()
    return StoredAttempt(
        replace(CASE, **case),
        Identity("code", "data", testbed),
        status,
        started_at=started,
        measurements=number,
        series=series,
        artefacts=artefacts,
        run_id=run.id,
        stored_at=started + timedelta(seconds=1),
    )


@pytest.fixture
def ship(tmp_path, monkeypatch):
    """Puts attempts of `THERE` into the place of the shipped files."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    monkeypatch.setattr(measured, "FOLDER", folder)

    def put(*attempts, name="rows", runs=(THERE,), suites=(FACTS,)):
        write_rows(Contents(runs, suites, attempts), folder / f"{name}.jsonl.xz")

    yield put
    measured._read.cache_clear()


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "mine.db", writes=True) as opened:
        yield opened


def own(store, *attempts):
    store.add(Contents((HERE,), (FACTS,), attempts))


def losses(rows):
    return [(row.variant, row.seed, row.value, is_shipped(row)) for row in rows]


def test_where_no_file_is_shipped_there_is_nothing_and_a_store_reads_as_it_is(store, ship):
    own(store, attempt(HERE))
    assert shipped() == ((), (), ())
    assert overlaid(store).rows() == store.rows()
    assert overlaid(store).runs() == store.runs()
    assert overlaid(store).suites() == store.suites()


def test_what_is_in_the_package_can_be_read_names_nobody_and_is_packed_into_the_wheel():
    rows, runs, _ = shipped()
    assert {row.run_id for row in rows} == {run.id for run in runs}
    for path in measured.FOLDER.glob("*.jsonl.xz"):
        read = read_rows(path)
        assert nameless(read) == read, path.name
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert "attnbench.reports.measured" in project["tool"]["setuptools"]["packages"]
    assert "*.jsonl.xz" in project["tool"]["setuptools"]["package-data"]["attnbench.reports.measured"]


def test_shipped_rows_fill_what_the_database_has_not(store, ship):
    own(store, attempt(HERE, 0.5))
    ship(attempt(THERE, 0.125, variant="delta"))
    assert losses(overlaid(store).rows()) == [("linear", 0, 0.5, False), ("delta", 0, 0.125, True)]
    assert overlaid(store).runs() == [*store.runs(), replace(THERE, attempts={Status.OK: 1})]


def test_an_empty_database_shows_shipped_rows_and_their_suites(store, ship):
    ship(attempt(THERE))
    assert losses(overlaid(store).rows()) == [("linear", 0, 0.25, True)]
    assert overlaid(store).suites() == [FACTS]
    assert store.rows() == []


@pytest.mark.parametrize("status", [Status.OK, Status.ERROR, Status.INTERRUPTED])
def test_the_databases_own_row_stands_whatever_its_status(store, ship, status):
    own(store, attempt(HERE, 0.5, status=status))
    ship(attempt(THERE, 0.125))
    (row,) = overlaid(store).rows()
    assert (row.status, is_shipped(row)) == (status, False)


def test_a_cell_goes_over_seeds_so_one_seed_of_ones_own_leaves_out_all_shipped_ones(store, ship):
    own(store, attempt(HERE, 0.5, seed=7))
    ship(*(attempt(THERE, seed=seed) for seed in (0, 1, 2)), attempt(THERE, seed=0, point=Point(pairs=40)))
    assert [(row.point["pairs"], row.seed, is_shipped(row)) for row in overlaid(store).rows()] == [
        (20, 7, False), (40, 0, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [{"form": "parallel"}, {"scale": "quick"}, {"device": "cuda"}, {"testbed": "another"}, {"suite": "rewrite"}],
    ids=str,
)
def test_what_never_shares_a_cell_with_a_row_stays_beside_it(store, ship, other):
    own(store, attempt(HERE))
    ship(attempt(THERE, **other))
    assert [is_shipped(row) for row in overlaid(store).rows()] == [False, True]


def test_threads_alone_do_not_make_another_case(store, ship):
    own(store, attempt(HERE))
    ship(attempt(THERE, threads=2))
    assert [is_shipped(row) for row in overlaid(store).rows()] == [False]


def test_of_a_case_shipped_twice_the_newest_counts_and_an_interrupted_one_only_alone(store, ship):
    later = START + timedelta(days=1)
    ship(attempt(THERE, 0.5), name="a")
    ship(
        attempt(THERE, 0.125, started=later), attempt(THERE, status=Status.INTERRUPTED, started=later, seed=1), name="b"
    )
    ship(attempt(THERE, status=Status.INTERRUPTED, started=later + timedelta(days=1)), name="c")
    assert [(row.seed, row.value, row.status) for row in overlaid(store).rows()] == [
        (0, 0.125, Status.OK), (1, None, Status.INTERRUPTED),
    ]  # fmt: skip


def test_rows_are_chosen_by_suite_variant_scale_and_run_among_both(store, ship):
    own(store, attempt(HERE), attempt(HERE, suite="rewrite"))
    ship(attempt(THERE, variant="delta"), attempt(THERE, variant="delta", scale="quick"), attempt(THERE, seed=1))
    both = overlaid(store)
    assert len(both.rows()) == 4
    assert losses(both.rows(suites=["capacity"], scales=["paper"])) == [
        ("linear", 0, 0.25, False), ("delta", 0, 0.25, True),
    ]  # fmt: skip
    assert losses(both.rows(variants=["delta"])) == [("delta", 0, 0.25, True)] * 2
    assert [row.run_id for row in both.rows(runs=["here"])] == ["here", "here"]
    # the row of the other run stands, though it was not asked for
    assert losses(both.rows(runs=["there"], variants=["linear"])) == []


def test_curves_and_texts_of_both_are_found_by_the_number_of_their_attempt(store, ship):
    mine, theirs = (Series("loss", "step", (1.0,), (loss,)) for loss in (0.5, 0.125))
    note = Artefact("sample", "text/plain", "eins")
    own(store, attempt(HERE, series=(mine,)))
    ship(attempt(THERE, variant="delta", series=(theirs,), artefacts=(note,)))
    both = overlaid(store)
    own_id, their_id = (row.attempt_id for row in both.rows())
    assert both.series([own_id, their_id, 99, -99]) == {own_id: [mine], their_id: [theirs]}
    assert both.artefacts([own_id, their_id]) == {their_id: [note]}


def test_a_database_that_has_imported_the_shipped_rows_shows_them_as_its_own(store, ship):
    ship(attempt(THERE))
    store.add(Contents((THERE,), (FACTS,), (attempt(THERE),)))
    assert losses(overlaid(store).rows()) == [("linear", 0, 0.25, False)]
    assert [run.id for run in overlaid(store).runs()] == ["there"]


def test_what_the_database_knows_of_a_suite_stands(store, ship):
    own(store, attempt(HERE))
    ship(attempt(THERE), suites=(replace(FACTS, question="how few?"), replace(FACTS, name="rewrite")))
    assert overlaid(store).suites() == [FACTS, replace(FACTS, name="rewrite")]


def test_a_shipped_file_that_is_broken_is_told_by_name(store, ship):
    (measured.FOLDER / "bad.jsonl.xz").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"bad\.jsonl\.xz is no file of rows"):
        overlaid(store).rows()


def test_one_sentence_says_how_many_rows_were_shipped_from_what_machine_and_commit(store, ship):
    own(store, attempt(HERE))
    dirty = replace(THERE, id="dirty", device={"gpu": "H200"}, machine={}, is_dirty=True)
    ship(
        attempt(THERE, variant="delta"), attempt(THERE, variant="softmax"), attempt(dirty, variant="fwm"),
        runs=(THERE, dirty),
    )  # fmt: skip
    both = overlaid(store)
    assert origins(both.rows(), both.runs()) == (
        "Shipped with attnbench, not measured for this database: 2 of 4 attempts (delta, softmax), measured on "
        "their processor, 2 cores, at commit abcdef012345",
        "Shipped with attnbench, not measured for this database: 1 of 4 attempts (fwm), measured on "
        "a processor that is not recorded, H200, at commit abcdef012345 with changes that are in no commit",
    )
    assert origins(store.rows(), store.runs()) == ()


def test_a_page_says_which_rows_were_shipped_and_without_them_says_nothing(store, ship, tmp_path):
    own(store, attempt(HERE, 0.5))
    ship(attempt(THERE, 0.125, variant="delta"))
    before = (tmp_path / "mine.db").read_bytes()
    page = write_report(tmp_path / "mine.db", tmp_path / "both.html", measured=True).read_text(encoding="utf-8")
    assert "1 of them were shipped with attnbench" in page
    assert "1 of 2 attempts (delta), measured on their processor, 2 cores, at commit abcdef012345." in page
    assert '"shipped":[0,1]' in page
    assert "<dt>rows</dt><dd>shipped with attnbench, not measured for this database</dd>" in page
    assert '<data value="0.125">0.125</data>' in page
    alone = write_report(tmp_path / "mine.db", tmp_path / "own.html").read_text(encoding="utf-8")
    assert "shipped with attnbench" not in alone
    assert '"shipped":[0]' in alone
    assert '<data value="0.125">' not in alone
    assert (tmp_path / "mine.db").read_bytes() == before


def test_the_terminal_says_which_rows_were_shipped(store, ship):
    own(store, attempt(HERE, 0.5))
    ship(attempt(THERE, 0.125, variant="delta"))
    console = Console(file=io.StringIO(), width=200, color_system=None)
    both = overlaid(store)
    show(both, console, suites=["capacity"], runs=both.runs())
    said = console.file.getvalue()
    assert "1 of 2 attempts (delta), measured on their processor, 2 cores, at commit abcdef012345." in said
    assert "0.125" in said


@pytest.mark.parametrize(
    ("arguments", "is_there"),
    [("report", True), ("report --no-measured", False), ("show --measured", True), ("show", False)],
)
def test_a_report_takes_shipped_rows_in_and_show_only_on_request(
    store, ship, tmp_path, monkeypatch, capsys, arguments, is_there
):
    from attnbench.harness.__main__ import main

    own(store, attempt(HERE, 0.5))
    ship(attempt(THERE, 0.4375, variant="delta"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["attnbench", *arguments.split(), "--db", "mine.db"])
    with pytest.raises(SystemExit) as ending:
        main()
    assert not ending.value.code
    page = tmp_path / "attnbench.html"
    said = page.read_text(encoding="utf-8") if page.exists() else capsys.readouterr().out
    assert ("0.438" in said) is is_there


def test_without_a_database_the_shipped_rows_are_all_there_is(ship):
    ship(
        attempt(
            THERE, series=(Series("loss", "step", (1.0,), (0.5,)),), artefacts=(Artefact("note", "text/plain", "x"),)
        )
    )
    with reading(None, measured=True) as read:
        (row,) = read.rows()
        assert is_shipped(row)
        assert [run.id for run in read.runs()] == ["there"]
        assert read.suites() == [FACTS]
        assert list(read.series([row.attempt_id])) == list(read.artefacts([row.attempt_id])) == [row.attempt_id]
        assert read.series([1]) == read.artefacts([1]) == {}


def test_a_database_is_read_with_the_shipped_rows_or_without_and_must_be_there(store, ship, tmp_path):
    own(store, attempt(HERE, 0.5))
    ship(attempt(THERE, 0.125, variant="delta"))
    for measured_too, expected in ((True, 2), (False, 1)):
        with reading(tmp_path / "mine.db", measured=measured_too) as read:
            assert len(read.rows()) == expected
    with pytest.raises(BadDatabase, match="no database at"), reading(tmp_path / "gone.db", measured=True):
        pass


def test_a_page_without_a_database_says_that_its_rows_were_shipped(ship, tmp_path):
    ship(attempt(THERE, 0.4375))
    said = write_report(None, tmp_path / "page.html", measured=True).read_text(encoding="utf-8")
    assert "0.438" in said
    assert "from the rows shipped with attnbench. Every number is one of those;" in " ".join(said.split())
