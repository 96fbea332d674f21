"""The page put into a file."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from attnbench.harness.environment import Run
from attnbench.harness.errors import BadDatabase, UserError
from attnbench.harness.rows import Attempt, Identity, Measurement, Series, Status
from attnbench.harness.spec import Case, Grid, Point, Suite
from attnbench.harness.store import Store
from attnbench.reports.write import check_report, write_report


@pytest.fixture
def database(tmp_path):
    """A database with one stored case."""
    path = tmp_path / "results.db"
    suite = Suite(
        name="capacity",
        title="Retrieval capacity",
        question="How many pairs?",
        source="",
        module="m",
        axis="pairs",
        metrics=("retrieval_loss",),
        scales={"quick": Grid(variants=("linear",), points=(Point(pairs=20),))},
        forms=("chunkwise",),
    )
    with Store.open(path, writes=True) as store:
        store.begin_run(Run("run-1", "attnbench run", datetime(2026, 1, 2, tzinfo=UTC), machine={"cpu": "a processor"}))
        store.record_suite(suite)
        case = Case("capacity", "linear", "chunkwise", Point(pairs=20), 0, "quick")
        identity = Identity("c0de", "da7a")
        store.claim(case, identity, run_id="run-1", owner="me", lease_seconds=60)
        attempt = Attempt(
            case,
            identity,
            Status.OK,
            started_at=datetime(2026, 1, 2, tzinfo=UTC),
            measurements=(Measurement("retrieval_loss", 0.125),),
            series=(Series("evaluation_loss", "step", (100.0, 200.0), (0.25, 0.125)),),
        )
        assert store.append("run-1", attempt, owner="me")
        store.end_run("run-1", "finished")
    return path


def test_a_report_is_written_from_the_database_and_nothing_else_is_left(database, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    before = database.read_bytes()
    assert write_report(database, folder / "page.html") == folder / "page.html"
    text = (folder / "page.html").read_text(encoding="utf-8")
    assert '<data value="0.125">0.125</data>' in text
    assert "a processor" in text
    assert [path.name for path in folder.iterdir()] == ["page.html"]
    assert database.read_bytes() == before


def test_a_report_shows_the_learning_curves_that_are_stored(database, tmp_path):
    text = write_report(database, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Evaluation loss against step at pairs 20" in text


def test_a_report_takes_the_place_of_an_older_one(database, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    write_report(database, path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_destination_that_is_a_folder_is_refused_with_a_name_to_use(tmp_path):
    with pytest.raises(UserError) as caught:
        check_report(tmp_path)
    assert str(caught.value) == (
        f"a file was needed for the report, but {tmp_path} is a folder. Try {tmp_path / 'attnbench.html'}."
    )


def test_a_destination_in_a_missing_folder_is_refused_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(UserError) as caught:
        check_report(tmp_path / "missing" / "page.html")
    assert str(caught.value) == (
        f"no folder {tmp_path / 'missing'} for the report {tmp_path / 'missing' / 'page.html'}. "
        f"Make it first: mkdir -p {tmp_path / 'missing'}"
    )


def test_a_destination_in_a_read_only_folder_is_refused(tmp_path, monkeypatch):
    # root may write everywhere, so the system's answer is made up
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UserError) as caught:
        check_report(tmp_path / "page.html")
    assert str(caught.value) == (
        f"the folder {tmp_path} of the report {tmp_path / 'page.html'} cannot be written. Choose another with --output."
    )


def test_a_report_does_not_replace_a_database_or_a_device(database):
    with pytest.raises(UserError, match="is a database, which the report would replace"):
        check_report(database)
    with pytest.raises(UserError, match="is a device or a pipe"):
        check_report(Path("/dev/null"))


def test_a_missing_database_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(BadDatabase, match="no database at"):
        write_report(tmp_path / "none.db", tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_leaves_the_older_report_as_it_was(database, tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")

    def full(*_arguments, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_report(database, path)
    assert path.read_bytes() == b"old"
    assert {one.name for one in tmp_path.iterdir()} <= {"page.html", database.name}
