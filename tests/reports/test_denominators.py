"""What is said about FAVOR+ comes from its rows."""

import pytest

from attnbench.harness.rows import Status
from attnbench.reports.denominators import denominators_passage


def asked(made, variant, pairs, loss, start, end, protocol="code"):
    numbers = {"retrieval_loss": loss, "denominator_at_start": start, "denominator_at_end": end}
    return made.attempt("capacity", variant, made.pairs(pairs, protocol=protocol), numbers)


@pytest.fixture
def unscaled(made):
    rows = asked(made, "performer-m64", 20, 0.125, 0.5, 0.25)
    rows += asked(made, "performer-m64", 60, 0.4825, 4.5e-5, 2e-5)
    return rows + asked(made, "performer-m64", 100, 0.5, 2.5e-13, 1e-12)


@pytest.fixture
def scaled(made):
    rows = asked(made, "performer-m64+scaled", 20, 0.15, 47.0, 40.0)
    return rows + asked(made, "performer-m64+scaled", 60, 0.28, 91.0, 80.0)


def test_the_table_has_losses_and_denominators_of_both_forms(made, unscaled, scaled):
    (passage,) = denominators_passage(unscaled + scaled, made.capacity)
    (table,) = passage.tables
    assert [line.labels for line in table.lines] == [("20",), ("60",), ("100",)]
    assert table.columns[0] == "performer-m64: loss"
    assert table.columns[-1] == "performer-m64+scaled: denominator at end"
    assert [cell.text for cell in table.lines[0].cells] == ["0.125", "0.500", "0.250", "0.150", "47.0", "40.0"]
    assert [cell.text for cell in table.lines[2].cells][3:] == ["not run"] * 3


def test_the_paragraphs_tell_where_the_denominator_sinks_and_what_is_left_when_it_does_not(made, unscaled, scaled):
    (passage,) = denominators_passage(unscaled + scaled, made.capacity)
    published, mended = passage.paragraphs
    assert "its median is 0.500 at S = 20, 4.5e-5 at S = 60, 2.5e-13 at S = 100." in published
    assert "From S = 100 on it is below the 1e-6 that is added to it" in published
    assert "Training does not lift it: at the end it is 1.0e-12 there." in published
    assert "exactly 0.5; the best losses there are 0.5000." in published
    assert "(performer-m64+scaled) the denominator starts at 47.0 to 91.0." in mended
    assert (
        "At S = 20, where neither denominator is small against 1e-6, the losses are 0.125 unscaled and 0.150" in mended
    )
    assert mended.endswith("the genuine variance of random features.")


def test_a_denominator_that_never_sinks_is_not_said_to(made):
    (passage,) = denominators_passage(asked(made, "performer-m64", 20, 0.1, 0.5, 0.25), made.capacity)
    assert "1e-6" not in " ".join(passage.paragraphs)
    assert len(passage.paragraphs) == 1


def test_where_the_scaled_form_retrieves_no_variance_is_blamed(made, unscaled):
    rows = unscaled + asked(made, "performer-m64+scaled", 20, 0.0009, 47.0, 40.0)
    (passage,) = denominators_passage(rows, made.capacity)
    assert passage.paragraphs[-1].endswith("At S = 20 the losses are 0.125 unscaled and 0.00090 scaled.")


def test_a_case_without_a_number_shows_how_it_ended(made, unscaled, scaled):
    point = made.pairs(100, protocol="code")
    rows = made.attempt("capacity", "performer-m64+scaled", point, status=Status.TIMEOUT, reason="300 s")
    (passage,) = denominators_passage(unscaled + scaled + rows, made.capacity)
    assert [cell.text for cell in passage.tables[0].lines[-1].cells[3:]] == ["timeout"] * 3


def test_many_lengths_are_cut_to_the_first_ones_and_the_last(made):
    rows = []
    for pairs in range(20, 601, 20):
        rows += asked(made, "performer-m64", pairs, 0.5, 1e-9, 1e-9)
    (passage,) = denominators_passage(rows, made.capacity)
    assert [line.labels[0] for line in passage.tables[0].lines] == ["20", "40", "60", "80", "100", "120", "140", "600"]


def test_two_protocols_are_told_apart(made, unscaled):
    rows = unscaled + asked(made, "performer-m64", 20, 0.12, 0.5, 0.25, "text")
    (passage,) = denominators_passage(rows, made.capacity)
    assert passage.tables[0].heads == ("pairs", "protocol")
    assert [line.labels for line in passage.tables[0].lines][:2] == [("20", "code"), ("20", "text")]


def test_other_variants_and_rows_without_denominators_say_nothing(made, scaled):
    rows = made.attempt("capacity", "performer-m64", made.pairs(20), {"retrieval_loss": 0.1})
    assert denominators_passage(rows, made.capacity) == ()
    assert denominators_passage(scaled, made.capacity) == ()
    assert denominators_passage(asked(made, "linear", 20, 0.1, 1.0, 1.0), made.capacity) == ()


def test_where_a_denominator_is_small_after_training_no_variance_is_blamed(made):
    rows = asked(made, "performer-m64", 20, 0.125, 0.5, 5e-5)
    rows += asked(made, "performer-m64+scaled", 20, 0.15, 47.0, 40.0)
    (passage,) = denominators_passage(rows, made.capacity)
    assert passage.paragraphs[-1].endswith("At S = 20 the losses are 0.125 unscaled and 0.150 scaled.")
