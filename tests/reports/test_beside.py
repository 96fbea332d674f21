"""Published tables of perplexities with ours beside them."""

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.beside import beside_passage
from attnbench.reports.published import printed
from attnbench.reports.published.protocol import protocols

SMALL = Point({**protocols()["small"].point, "positions": "sinusoidal"})
OURS = Point({**SMALL, "data": "web-bible", "tokeniser": "bpe", "width": 64})


def asked(made, variant, point, perplexity, seed=0):
    return made.attempt("language_modelling", variant, point, {"word_perplexity": perplexity}, seed=seed)


def tables_of(made, rows):
    return {table.title: table for one in beside_passage(rows, made.language, printed()) for table in one.tables}


def test_our_median_stands_beside_each_published_line_and_what_differs_is_said(made):
    rows = [
        row for seed, value in enumerate((100.0, 120.0, 110.0)) for row in asked(made, "softmax", OURS, value, seed)
    ]
    table = tables_of(made, rows)["Table 2, small"]
    softmax = next(line for line in table.lines if line.variant == "softmax")
    published, here = softmax.cells[-2:]
    assert (published.text, here.text, here.spread, here.n) == ("34.1", "110.0", "100.0 – 120.0", 3)
    assert "arXiv:2102.11174, Table 2" in published.source
    assert set(here.attempts) == {row.attempt_id for row in rows}
    said = ". ".join(table.notes)
    assert "data web-bible (not wikitext-103)" in said
    assert "width 64 (not 128)" in said
    assert "read the order, not the numbers" in said


def test_a_run_of_the_published_settings_says_so(made):
    table = tables_of(made, asked(made, "softmax", SMALL, 35.0))["Table 2, small"]
    assert "Here the settings are those of the publication" in table.notes


def test_a_variant_that_was_not_measured_or_failed_says_so(made):
    rows = asked(made, "softmax", OURS, 100.0)
    rows += made.attempt("language_modelling", "linear", OURS, status=Status.DIVERGED, reason="at step 7")
    lines = {line.variant: line.cells[-1] for line in tables_of(made, rows)["Table 2, small"].lines}
    assert (lines["linear"].text, lines["linear"].words) == ("diverged", ("diverged: at step 7",))
    assert lines["delta"].text == "not run"


def test_an_ablation_stands_beside_a_case_with_its_own_settings(made):
    without = Point({**OURS, "positions": "none"})
    table = tables_of(made, asked(made, "delta", without, 90.0))["Table 3"]
    assert table.heads == ("variant", "positions")
    shown = {line.labels: line.cells[-1].text for line in table.lines}
    assert shown["delta", "none"] == "90.0"
    assert shown["delta+attnnorm", "none"] == "not run"


def test_nothing_is_shown_where_no_published_variant_was_measured(made):
    assert beside_passage(asked(made, "gated", OURS, 100.0), made.language, printed()) == ()
    assert beside_passage([], made.language, printed()) == ()
