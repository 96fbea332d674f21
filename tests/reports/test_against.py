"""Published against measured, on rows that are the released logs themselves but where a test says otherwise."""

import math
from xml.etree import ElementTree

import pytest

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.against import against_passage, counts, differences, left_out, reasons
from attnbench.reports.agreement import LOGGED, pairs
from attnbench.reports.palette import looks
from attnbench.reports.published import logged_runs


def like_the_log(made, run, loss=None, seed=0, steps=None):
    """The rows of a run that ended as the log did, or with another loss."""
    point = Point({run.axis: run.at, **LOGGED.point})
    if loss is None and run.hit_nan:
        return made.attempt(run.suite, run.variant, point, seed=seed, scale="paper", status=Status.DIVERGED)
    numbers = {"retrieval_loss": run.best_loss if loss is None else loss, "training_steps": steps or run.steps}
    return made.attempt(run.suite, run.variant, point, numbers, seed=seed, scale="paper")


def runs_of(suite):
    return [run for run in logged_runs() if run.suite == suite]


def suite_rows(made, suite, changed=None):
    return [
        row
        for run in runs_of(suite)
        for seed, loss in enumerate((changed or {}).get((run.variant, run.at), [None]))
        for row in like_the_log(made, run, loss, seed)
    ]


def numbers(table, variant):
    (line,) = [line for line in table.lines if line.variant == variant]
    return dict(zip(table.columns, (cell.value for cell in line.cells), strict=True))


def test_rows_that_are_the_logs_agree_everywhere(made):
    found = pairs(suite_rows(made, "capacity"), runs_of("capacity"))
    assert numbers(counts(found), "all") == {
        "released runs": 240,
        "agree": 240,
        "both retrieve": sum(run.best_loss <= 0.001 for run in runs_of("capacity")),
        "both fail": sum(run.best_loss > 0.001 for run in runs_of("capacity")),
        "differ": 0,
    }
    assert differences(found).lines == ()


def test_nan_logs_and_the_broken_one_are_counted_apart_and_listed(made):
    found = pairs(suite_rows(made, "rewrite"), runs_of("rewrite"))
    every = numbers(counts(found), "all")
    assert (every["released runs"], every["agree"], every["NaN on both sides"], every["excluded"]) == (80, 61, 18, 1)
    listed = {(line.labels, line.remarks) for line in left_out(found).lines}
    assert len(listed) == 19
    assert (("dpfp-nu2+delta", "100"), ("the published log breaks off at step 300",)) in listed
    assert (("performer-m64+delta", "140"), ("both runs ended in NaN",)) in listed


def test_the_ways_to_differ_are_counted(made):
    # linear: 0.0009 at 20, 0.0245 at 60, 0.16 at 100
    changed = {("linear", 20): [0.3], ("linear", 60): [0.0005], ("linear", 100): [0.4], ("linear", 80): [math.nan]}
    rows = [row for row in suite_rows(made, "capacity", changed) if row.variant == "linear"]
    found = pairs(rows, runs_of("capacity"))
    linear = numbers(counts(found), "linear")
    assert (linear["agree"], linear["differ"]) == (26, 4)
    assert linear["only measured retrieves"] == linear["only published retrieves"] == 1
    assert linear["both fail, losses apart"] == 1
    assert numbers(counts(found), "softmax")["not measured"] == 30


def test_a_difference_is_listed_with_both_numbers_and_why(made):
    changed = {("linear", 60): [0.0005, 0.0007, 0.03]}
    found = pairs(suite_rows(made, "capacity", changed), runs_of("capacity"))
    (line,) = differences(found).lines
    assert line.labels == ("linear", "60")
    assert [cell.text for cell in line.cells] == ["0.0245", "4,200", "0.00070", "4,200"]
    assert line.cells[2].spread == "0.00050 – 0.0300"
    assert line.remarks == (
        "measured retrieves, published does not",
        "near the breaking point: published runs beside it retrieve at 20, 40 and fail at 60, 80, 100",
        "2 of our 3 seeds retrieve",
        "seed 2 of ours stopped by patience at step 4,200",
    )


def test_losses_close_to_the_line_and_single_seeds_are_said(made):
    # softmax at 500: 0.0089 published; at 480 and 440 it retrieves
    changed = {("softmax", 500): [0.0009]}
    found = pairs(suite_rows(made, "capacity", changed), runs_of("capacity"))
    (pair,) = [pair for pair in found if (pair.variant, pair.at) == ("softmax", 500)]
    said = reasons(pair, found)
    assert "one seed on either side" in said
    assert "no loss is above 0.01, ten times the 0.001 that runs have to reach" in said
    assert any(words.startswith("near the breaking point") for words in said)


def test_a_run_that_spent_all_steps_or_diverged_says_so(made):
    run = next(run for run in runs_of("capacity") if (run.variant, run.at) == ("linear", 20))
    rows = like_the_log(made, run, 0.3, steps=100_000)
    rows += made.attempt("capacity", "linear", rows[0].point, seed=1, scale="paper", status=Status.DIVERGED)
    found = pairs(rows, runs_of("capacity"))
    (pair,) = [pair for pair in found if pair.losses]
    assert reasons(pair, found)[-2:] == ("seed 0 of ours spent all of its steps", "seed 1 of ours diverged")


def test_the_passage_says_the_counts_and_draws_a_panel_a_variant(made):
    rows = suite_rows(made, "rewrite", {("delta", 20): [0.3, 0.4]})
    (passage,) = against_passage(rows, made.rewrite, looks(row.variant for row in rows), "rewrite")
    (words,) = passage.paragraphs
    assert "Of the 80 released training runs of this section, 61 are compared" in words
    assert "60 agree, 1 differ." in words
    assert "NaN on both sides, a class of its own: 18. Left out by rule, and listed: 1." in words
    (figure,) = passage.figures
    texts = {element.text for element in ElementTree.fromstring(figure.svg).iter("{http://www.w3.org/2000/svg}text")}
    assert {"dpfp-nu1+fwm", "delta", "published", "measured", "differs", "retrieves: at most 0.001"} <= texts
    assert "60 of 61 measured lengths agree" in figure.alt


@pytest.mark.parametrize("more", [{"protocol": "text"}, {"max_steps": 1500}])
def test_rows_of_another_protocol_are_compared_with_nothing(made, more):
    point = Point({"pairs": 20, **LOGGED.point, **more})
    rows = made.attempt("capacity", "linear", point, {"retrieval_loss": 0.0009}, scale="paper")
    assert against_passage(rows, made.capacity, looks(["linear"]), "x") == ()


def test_seeds_that_stopped_alike_are_told_together(made):
    changed = {("linear", 60): [0.0005, 0.0007, 0.03, 0.04]}
    found = pairs(suite_rows(made, "capacity", changed), runs_of("capacity"))
    (pair,) = [pair for pair in found if (pair.variant, pair.at) == ("linear", 60)]
    assert reasons(pair, found)[-1] == "seeds 2, 3 of ours stopped by patience at step 4,200"
