"""Both protocols of the rewrite suite beside each other."""

import pytest

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.protocols import protocols_passage


def asked(made, variant, keys, protocol, losses, distinct):
    point = Point(keys=keys, protocol=protocol, key_width=64)
    return [
        row
        for seed, loss in enumerate(losses)
        for row in made.attempt(
            "rewrite", variant, point, {"retrieval_loss": loss, "distinct_keys": distinct}, seed=seed, scale="paper"
        )
    ]


@pytest.fixture
def rows(made):
    rows = asked(made, "dpfp-nu1", 20, "code", [0.09, 0.1, 0.11], 12.5)
    rows += asked(made, "dpfp-nu1", 20, "text", [0.25, 0.26, 0.27], 16.0)
    rows += asked(made, "delta", 20, "code", [0.0008], 12.5)
    rows += asked(made, "delta", 20, "text", [0.0009], 16.0)
    # no text there: not shown
    return rows + asked(made, "dpfp-nu1", 200, "code", [0.23], 126.0)


def test_each_length_has_the_published_number_and_both_measured_ones(made, rows):
    (passage,) = protocols_passage(rows, made.rewrite)
    (table,) = passage.tables
    assert table.columns == ("keys 20, published", "keys 20, code", "keys 20, text")
    assert {line.variant: [cell.text for cell in line.cells] for line in table.lines} == {
        "delta": ["0.00080", "0.00080", "0.00090"],
        "dpfp-nu1": ["0.0973", "0.100", "0.260"],
    }
    assert table.lines[1].cells[2].spread == "0.250 – 0.270"


def test_the_paragraph_explains_the_gap_with_numbers_from_the_rows(made, rows):
    (passage,) = protocols_passage(rows, made.rewrite)
    (words,) = passage.paragraphs
    # 20 writes under 12.5 keys are 1.6 a key, 40 under 16 are 2.5
    assert "At S = 20, 12.5 different keys are written in 20 writes of the one, 16.0 in 40 of the other" in words
    assert "1.6 against 2.5 values a key" in words
    assert "that of dpfp-nu1: 0.260 under text, 0.100 under code, 0.0973 in the released log" in words


def test_a_case_without_a_number_shows_how_it_ended_and_one_that_was_not_asked_says_so(made, rows):
    point = Point(keys=20, protocol="code", key_width=64)
    rows += made.attempt("rewrite", "fwm", point, status=Status.DIVERGED, reason="not finite at step 7")
    rows += asked(made, "fwm", 20, "text", [1.5], 16.0)
    rows += asked(made, "gated", 20, "code", [0.1], 12.5)
    (passage,) = protocols_passage(rows, made.rewrite)
    shown = {line.variant: line.cells for line in passage.tables[0].lines}
    assert [cell.text for cell in shown["fwm"]] == ["1.50", "diverged", "1.50"]
    assert shown["fwm"][1].words == ("diverged: not finite at step 7",)
    assert [cell.text for cell in shown["gated"]] == ["–", "0.100", "not run"]


def test_one_protocol_alone_is_beside_nothing(made, rows):
    assert protocols_passage([row for row in rows if row.point["protocol"] == "code"], made.rewrite) == ()


def test_a_seed_that_diverged_counts_as_the_worst_and_is_not_left_out(made, rows):
    point = rows[0].point
    for seed in (3, 4, 5):
        rows += made.attempt("rewrite", "dpfp-nu1", point, seed=seed, scale="paper", status=Status.DIVERGED, reason="x")
    (passage,) = protocols_passage(rows, made.rewrite)
    # 0.09, 0.1, 0.11 and three that diverged: the median lies among these
    assert passage.tables[0].lines[1].cells[1].text == "NaN"
