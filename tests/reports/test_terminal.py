"""The tables in a terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from attnbench.harness.errors import UnknownMetric, UnknownScale, UnknownSuite, UnknownVariant
from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.terminal import print_tables, show


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=120, color_system=None)


def printed(console):
    return console.file.getvalue()


def test_a_table_in_the_terminal_reads_like_this(made, console):
    rows = []
    for number, loss in ((20, 0.25), (60, 0.5)):
        rows += made.attempt("capacity", "linear", made.pairs(number), {"retrieval_loss": loss})
    rows += made.attempt("capacity", "delta", made.pairs(20), status=Status.DIVERGED, reason="not finite at step 7")
    print_tables(rows, made.suites, console)
    lines = [line.rstrip() for line in printed(console).splitlines()]
    assert lines == [
        "───────────────────────────────────── Retrieval capacity: quick scale on cpu ─────────────────────────────────────".center(
            120, "─"
        ),
        "How many pairs fit into a memory of fixed size?",
        "",
        "Retrieval loss, by pairs",
        "┏━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━┓",
        "┃ variant ┃       20 ┃      60 ┃",
        "┡━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━┩",
        "│ delta   │ diverged │ not run │",
        "│ linear  │    0.250 │   0.500 │",
        "└─────────┴──────────┴─────────┘",
        "One seed, so no spread. Lower is better. Smallest evaluation loss of the run: half the squared error between the value",
        "read and the one-hot value that was stored, mean over queries. Reading zero gives 0.5. The same everywhere: form",
        "chunkwise, batch 32, key width 64, threads 1.",
        "delta, pairs 20; seed 0: diverged: not finite at step 7",
        "",
    ]


def test_several_suites_begin_with_a_summary(made, console):
    rows = made.attempt("capacity", "linear", made.pairs(20), {"retrieval_loss": 0.25})
    rows += made.attempt("rewrite", "linear", Point(keys=20), {"retrieval_loss": 0.25})
    print_tables(rows, made.suites, console)
    assert printed(console).startswith("Summary")


def test_names_and_reasons_are_printed_as_they_are_and_not_as_markup(made, console):
    rows = made.attempt("capacity", "[red]x[/red]", made.pairs(20), status=Status.ERROR, reason="[bold]no[/bold]")
    print_tables(rows, made.suites, console)
    assert "[red]x[/red]" in printed(console)
    assert "error: [bold]no[/bold]" in printed(console)


def test_nothing_stored_says_what_to_run(made, console):
    print_tables([], made.suites, console)
    assert "`attnbench run` measures" in printed(console)


def stored(made):
    rows = made.attempt("capacity", "linear", made.pairs(60), {"retrieval_loss": 0.25, "retrieval_accuracy": 0.75})
    rows += made.attempt("capacity", "delta", made.pairs(60), {"retrieval_loss": 0.125}, scale="smoke")
    return SimpleNamespace(rows=lambda: rows, suites=lambda: list(made.suites))


def test_show_prints_what_was_chosen(made, console):
    show(stored(made), console, suites=["capacity"], variants=["linear"], scales=["quick"], metrics=["retrieval_loss"])
    assert "published 0.0245" in printed(console)
    for left_out in ("delta", "0.750"):
        assert left_out not in printed(console)


@pytest.mark.parametrize(
    ("chosen", "refusal", "says"),
    [
        ({"suites": ["capcity"]}, UnknownSuite, "nothing is stored of suite 'capcity'"),
        ({"variants": ["linea"]}, UnknownVariant, "of variant 'linea'. Known: delta, linear. Did you mean 'linear'?"),
        ({"scales": ["paper"]}, UnknownScale, "nothing is stored of scale 'paper'. Known: quick, smoke."),
        ({"metrics": ["loss"]}, UnknownMetric, "no metric 'loss'. Known: "),
        ({"metrics": ["parameters"]}, UnknownMetric, "nothing is stored of metric 'parameters'. Known: retrieval"),
    ],
)
def test_show_refuses_a_name_that_nothing_stored_has(made, console, chosen, refusal, says):
    with pytest.raises(refusal) as refused:
        show(stored(made), console, **chosen)
    assert says in str(refused.value)


def test_a_table_that_is_too_wide_comes_in_pieces_that_all_name_their_lines(made):
    console = Console(file=io.StringIO(), width=40, color_system=None)
    rows = []
    for number in (20, 60, 100, 140, 180, 220):
        rows += made.attempt("rewrite", "linear", Point(keys=number), {"retrieval_loss": 0.25})
    print_tables(rows, made.suites, console)
    lines = printed(console).splitlines()
    assert sum("linear" in line for line in lines) == 2
    assert printed(console).count("0.250") == 6
    assert max(map(len, lines)) <= 40


def test_a_model_above_the_bigram_has_a_star_and_the_words_below_the_table(made, console):
    rows = made.attempt("language_modelling", "linear", Point(context=64), {"word_perplexity": 310.0})
    rows += made.attempt("language_modelling", "bigram", Point(context=64), {"word_perplexity": 300.0}, form="count")
    print_tables(rows, made.suites, console)
    assert "310.0 *" in printed(console)
    assert "* above the bigram floor: compares nothing" in printed(console)


def test_a_metric_that_explains_others_is_shown_where_it_is_asked_for(made, console):
    rows = []
    for number in (20, 60):
        rows += made.attempt("capacity", "linear", made.pairs(number), {"retrieval_loss": 0.25, "feature_rank": 64})
    store = SimpleNamespace(rows=lambda: rows, suites=lambda: made.suites)
    show(store, console)
    assert "Feature rank" not in printed(console)
    show(store, console, metrics=["feature_rank"])
    assert "Feature rank" in printed(console)
