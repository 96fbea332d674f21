"""Numbers from run to run."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from attnbench.harness.rows import Status
from attnbench.reports.palette import looks
from attnbench.reports.trends import moved_by_run, trends

RUNS = [
    SimpleNamespace(id=f"run-{n}", started_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=n), commit=f"c{n}")
    for n in (1, 2, 3)
]


def asked(made, run, losses, variant="delta"):
    rows = []
    for pairs, loss in losses.items():
        rows += made.attempt("capacity", variant, made.pairs(pairs), {"retrieval_loss": loss}, run=run)
    return rows


def test_a_ratio_is_to_the_first_run_of_each_case_and_a_mean_goes_over_cases(made):
    # 20: 0.2 -> 0.1 -> 0.1; 40: not asked -> 0.4 -> 1.6
    rows = (
        asked(made, "run-1", {20: 0.2})
        + asked(made, "run-2", {20: 0.1, 40: 0.4})
        + asked(made, "run-3", {20: 0.1, 40: 1.6})
    )
    found = moved_by_run(rows, "retrieval_loss", RUNS)["delta"]
    assert found["run-1"].ratio == 1
    # sqrt(0.5 * 1) and sqrt(0.5 * 4)
    assert found["run-2"].ratio == pytest.approx(0.5**0.5)
    assert found["run-3"].ratio == pytest.approx(2**0.5)
    assert (found["run-2"].cases, len(found["run-2"].attempts)) == (2, 2)


def test_what_one_run_has_alone_is_no_trend_and_neither_is_a_failure_or_other_data(made):
    rows = asked(made, "run-1", {20: 0.2})
    rows += made.attempt("capacity", "delta", made.pairs(20), status=Status.ERROR, reason="x", run="run-2")
    rows += [replace(row, data_hash="other") for row in asked(made, "run-3", {20: 0.2})]
    assert moved_by_run(rows, "retrieval_loss", RUNS) == {}
    assert trends(rows, made.suites, RUNS, looks(["delta"])) == ()


def test_a_trend_has_a_figure_and_a_table_with_words_where_a_run_has_no_case(made):
    rows = asked(made, "run-1", {20: 0.2}) + asked(made, "run-2", {20: 0.1})
    rows += asked(made, "run-2", {20: 0.3}, "linear") + asked(made, "run-3", {20: 0.3}, "linear")
    (passage,) = trends(rows, made.suites, RUNS, looks(["delta", "linear"]))
    assert passage.title == "Retrieval capacity: retrieval loss from run to run"
    (table,) = passage.tables
    assert [[cell.text for cell in line.cells] for line in table.lines] == [
        ["1", "0.5", "not run"],
        ["not run", "1", "1"],
    ]
    assert "The last: delta 0.5; linear 1." in passage.figures[0].alt
