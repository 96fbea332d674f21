"""The capacity points as a table and a figure."""

import io
from xml.etree import ElementTree

import pytest
from rich.console import Console

from attnbench.reports.capacity_passage import capacity_passage, capacity_table
from attnbench.reports.palette import looks
from attnbench.reports.terminal import print_tables


@pytest.fixture
def rows(made):
    rows = []
    for variant, last, offered in (
        ("linear", 40, {"feature_width": 64, "feature_rank": 64}),
        ("performer-m64", 0, {"feature_width": 128, "feature_rank": 128}),
        ("softmax", 60, {}),
    ):
        for number in (20, 40, 60):
            for seed in range(3):
                loss = 0.0009 if number <= last else 0.2
                rows += made.attempt(
                    "capacity", variant, made.pairs(number), {"retrieval_loss": loss, **offered}, seed=seed
                )
    return rows


def test_the_table_has_both_thresholds_and_what_the_features_offer(made, rows):
    table = capacity_table(rows, made.capacity)
    assert table.columns == (
        "pairs, loss ≤ 0.001",
        "pairs, loss ≤ 0.01",
        "feature width d_dot",
        "rank that the features span",
    )
    assert {line.variant: [cell.text for cell in line.cells] for line in table.lines} == {
        "linear": ["49", "49", "64", "64"],
        "performer-m64": ["< 20", "< 20", "128", "128"],
        "softmax": ["> 60", "> 60", "–", "–"],
    }
    assert table.lines[0].cells[0].spread == "40 – 60"


def test_a_dash_for_the_features_of_softmax_is_explained(made, rows):
    notes = ". ".join(capacity_table(rows, made.capacity).notes)
    assert "–: a memory that keeps every pair (softmax) has no features to count" in notes
    assert "3 seeds, unless the cell says n" in notes


def test_without_an_interval_the_table_says_why(made, rows):
    one_seed = [row for row in rows if row.seed == 0]
    notes = ". ".join(capacity_table(one_seed, made.capacity).notes)
    assert "No interval where fewer than 3 seeds ran beside the point" in notes
    assert "bootstrap" not in notes


def test_two_lengths_are_too_few_for_a_fit(made, rows):
    few = [row for row in rows if row.point["pairs"] != 40]
    assert capacity_table(few, made.capacity) is None
    assert capacity_passage(few, made.capacity, looks(["linear"]), "x") == ()


def test_the_figure_says_all_points_in_words_and_names_its_marks(made, rows):
    (passage,) = capacity_passage(rows, made.capacity, looks(row.variant for row in rows), "capacity")
    (figure,) = passage.figures
    assert "linear 49; performer-m64 < 20; softmax > 60" in figure.alt
    texts = {element.text for element in ElementTree.fromstring(figure.svg).iter("{http://www.w3.org/2000/svg}text")}
    assert {"linear", "performer-m64", "softmax", "rank of the features", "feature width d_dot"} <= texts
    assert "capacity-capacity-points-" in figure.svg


def test_the_terminal_shows_the_points_too(made, rows):
    console = Console(file=io.StringIO(), width=140, color_system=None)
    print_tables(rows, made.suites, console)
    printed = console.file.getvalue()
    assert "Pairs at which half of the runs retrieve" in printed
    assert "40 – 60" in printed


def test_the_caption_counts_the_points_that_their_rank_bounds(made, rows):
    (passage,) = capacity_passage(rows, made.capacity, looks(row.variant for row in rows), "x")
    # linear 49 <= 64, performer < 20; softmax has no rank
    assert passage.figures[0].caption.endswith("as their rank: 2 of 2 points lie at or left of it.")


def test_a_point_beyond_the_last_length_is_not_counted_against_its_rank(made):
    rows = []
    for number in (20, 40, 60):
        for variant, loss, rank in (("dpfp-nu1", 0.0009, 128), ("linear", 0.2 if number == 60 else 0.0009, 30)):
            numbers = {"retrieval_loss": loss, "feature_rank": rank}
            rows += made.attempt("capacity", variant, made.pairs(number), numbers)
    (passage,) = capacity_passage(rows, made.capacity, looks(["dpfp-nu1", "linear"]), "x")
    # linear 49 > 30; dpfp-nu1 > 60 may end left of its 128 or right of it
    assert passage.figures[0].caption.endswith("as their rank: 0 of 1 points lie at or left of it.")
