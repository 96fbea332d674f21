"""The board of verdicts: in the terminal, as JSON, on the page, and behind `attnbench verdicts`."""

import io
import json
from datetime import UTC, datetime

import pytest
from rich.console import Console

from attnbench.harness.__main__ import main
from attnbench.harness.errors import UnknownSuite
from attnbench.harness.rows import Attempt, Identity, Measurement, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Run, Store
from attnbench.reports.agreement import LOGGED
from attnbench.reports.page import page
from attnbench.reports.published.claims import Threshold, claims
from attnbench.reports.published.protocol import Protocol
from attnbench.reports.verdict_board import as_text, because, print_board, show_verdicts, verdict_board
from attnbench.reports.verdicts import Ruling, Verdict

EVIL = '<script>alert("x")</script>'


@pytest.fixture
def rows(made):
    # linear at 80 pairs fails, as published; softmax at 360 retrieves, against the published log
    found = []
    for variant, at, loss in (("linear", 80, 0.11), ("softmax", 360, 0.0001), ("softmax", 600, 0.2)):
        point = Point({"pairs": at, "batch": 32, **LOGGED.point})
        found += made.attempt("capacity", variant, point, {"retrieval_loss": loss}, scale="paper")
    return found


def text_of(board, width=200):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    print_board(board, console)
    return console.file.getvalue()


def test_the_board_counts_every_claim_once(rows):
    board = verdict_board(rows)
    assert sum(board.counts.values()) == len(claims()) == len(board.verdicts)
    assert set(board.counts) == set(Ruling)
    assert {ruling: len(ones) for ruling, ones in board.by_ruling.items()} == {
        ruling: count for ruling, count in board.counts.items() if count
    }
    answered = [one for ruling, ones in board.by_ruling.items() if ruling is not Ruling.NOT_MEASURED for one in ones]
    assert {one.claim.suite for one in answered} == {"capacity"}
    # each is opened by the attempts that it was read from
    assert {number for one in answered for number in one.attempts} <= {row.attempt_id for row in rows}
    assert all(one.attempts for one in answered)


def test_a_board_may_be_of_some_suites_alone(rows):
    board = verdict_board(rows, ["rewrite"])
    assert {one.claim.suite for one in board.verdicts} == {"rewrite"}
    assert {one.suite for one in board.remarks} == {"rewrite"}


def test_a_suite_that_no_claim_is_of_is_refused_with_the_nearest():
    known = "capacity, language_modelling, rewrite, translation, unbounded_context"
    with pytest.raises(UnknownSuite, match=rf"suite 'capcity'\. Known: {known}\. Did you mean 'capacity'\?"):
        verdict_board([], ["capcity"])


def test_the_terminal_shows_a_symbol_a_word_both_numbers_and_why_and_ends_with_the_counts(rows):
    shown = text_of(verdict_board(rows))
    assert "↗ direction only" in shown
    assert "✗ contradicted" in shown
    assert "Published claims: capacity" in shown
    assert "1 seed" in shown
    counts = shown.strip().splitlines()[-1]
    assert counts == ", ".join(f"{count} {ruling}" for ruling, count in verdict_board(rows).counts.items())


def test_a_narrow_terminal_shows_it_all_the_same(rows):
    shown = text_of(verdict_board(rows, ["rewrite"]), width=80)
    assert max(map(len, shown.splitlines())) <= 80
    assert "○ not measured" in shown


def test_the_suites_stand_in_the_order_of_the_paper_and_their_remarks_with_them():
    board = verdict_board([])
    suites = list(dict.fromkeys(one.claim.suite for one in board.verdicts))
    assert suites == ["capacity", "rewrite", "translation", "language_modelling", "unbounded_context"]
    chosen = verdict_board([], ["unbounded_context"])
    assert {one.id for one in chosen.remarks} == {"xl-half-the-steps", "xl-state-plus", "state-without-sums"}


def test_json_has_counts_verdicts_and_remarks(rows):
    read = json.loads(as_text(verdict_board(rows)))
    assert read["counts"]["contradicted"] == 2
    first = next(one for one in read["verdicts"] if one["id"] == "capacity-linear-fails-beyond-its-width")
    assert first["verdict"] == "direction only"
    assert first["measured"] == "0.110 at 80"
    assert (first["kind"], first["seeds"], first["attempts"], first["attempts_shipped"]) == ("threshold", 1, 1, 0)
    assert {"id", "suite", "says"} == set(read["remarks"][0])


def test_why_tells_the_seeds_and_what_was_shipped():
    some = claims()[0]
    assert (
        because(Verdict(some, Ruling.REPRODUCED, "", "", "so", 3, (3, 3)))
        == "so; 3 seeds, each alone gives the same verdict"
    )
    assert (
        because(Verdict(some, Ruling.REPRODUCED, "", "", "so", 3, (2, 3)))
        == "so; 3 seeds, 2 of 3 alone give the same verdict"
    )
    # four seeds everywhere, but only three of them are the same ones in all cases
    assert (
        because(Verdict(some, Ruling.REPRODUCED, "", "", "so", 4, (1, 3)))
        == "so; 4 seeds, 1 of 3 alone gives the same verdict"
    )
    assert (
        because(Verdict(some, Ruling.REPRODUCED, "", "", "so", 1, None, (1, 2)))
        == "so; 1 seed; 1 of 2 attempts shipped"
    )
    assert because(Verdict(some, Ruling.NOT_MEASURED, "", "", "")) == ""


def test_the_page_has_the_board_before_the_suites_with_words_beside_symbols(made, rows):
    text = page(rows, made.suites)
    assert text.index('id="summary"') < text.index('id="verdicts"') < text.index('id="suite-capacity"')
    board = text[text.index('id="verdicts"') : text.index('id="suite-capacity"')]
    assert '<a href="#suite-capacity">Retrieval capacity</a>' in board
    assert '<span aria-hidden="true">✗</span> contradicted <span class="dim">' in board
    assert "Where the paper's text and its released code differ" in board
    for ruling, count in verdict_board(rows).counts.items():
        href = f' href="#verdicts-{str(ruling).replace(" ", "-")}"' if count else ""
        assert f'{href} class="tile"><span class="count">{count}</span>' in text
        assert (f'id="verdicts-{str(ruling).replace(" ", "-")}"' in board) == bool(count)


def test_what_a_claim_or_row_says_stays_text(rows, monkeypatch):
    (evil,) = [claim for claim in claims() if claim.id == "capacity-softmax-struggles-above-500"]
    protocol = Protocol("x", EVIL, "paper", Point(), Point(protocol="code"))
    evil = type(evil)(EVIL, EVIL, EVIL, "capacity", "pairs", protocol, Point(), evil.test, EVIL)
    assert isinstance(evil.test, Threshold)
    monkeypatch.setattr("attnbench.reports.verdict_board.claims", lambda: (evil,))
    text = page(rows, ())
    assert EVIL not in text
    assert "&lt;script&gt;" in text


class Stored:
    def __init__(self, rows):
        self.stored = rows

    def rows(self):
        return self.stored


def test_show_verdicts_prints_one_or_the_other(rows):
    console = Console(file=io.StringIO(), width=120)
    show_verdicts(Stored(rows), console, suites=["capacity"], as_json=True)
    assert json.loads(console.file.getvalue())["counts"]["reproduced"] == 0
    console = Console(file=io.StringIO(), width=120)
    show_verdicts(Stored(rows), console, suites=["capacity"])
    assert console.file.getvalue().startswith("Published claims: capacity")


# The command.


@pytest.fixture
def attnbench(tmp_path, monkeypatch, capsys):
    """`attnbench ARGUMENTS` beside a database with one row that contradicts a claim."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNBENCH_DB", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    with Store.open(tmp_path / "attnbench.db", writes=True) as store:
        store.begin_run(Run("run", "attnbench run", datetime.now(UTC)))
        case = Case("capacity", "softmax", "readout", Point({"pairs": 600, "batch": 32, **LOGGED.point}), 0, "paper")
        measured = (Measurement("retrieval_loss", 0.2),)
        store.append("run", Attempt(case, Identity("", ""), Status.OK, measurements=measured), owner="me")
        store.end_run("run", "finished")

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["attnbench", *arguments])
        with pytest.raises(SystemExit) as ending:
            main()
        said = capsys.readouterr()
        return ending.value.code or 0, said.out, said.err

    return run


def test_the_command_exits_with_0_though_a_claim_is_contradicted(attnbench):
    code, out, err = attnbench("verdicts", "capacity", "--no-measured")
    assert (code, err) == (0, "")
    assert "✗ contradicted" in out


def test_the_command_prints_json_alone(attnbench):
    code, out, _ = attnbench("verdicts", "--json", "--no-measured")
    assert code == 0
    assert json.loads(out)["counts"]["contradicted"] >= 1


def test_the_command_refuses_a_suite_that_there_is_not(attnbench):
    code, out, err = attnbench("verdicts", "capcity")
    assert (code, out) == (2, "")
    assert err.startswith("attnbench: UnknownSuite: no published claim is of suite 'capcity'.")


@pytest.fixture
def nowhere(attnbench, tmp_path):
    """The same command where nothing has been run yet."""
    (tmp_path / "attnbench.db").unlink()
    return attnbench


def test_without_a_database_the_shipped_rows_answer_and_one_line_says_so(nowhere, tmp_path):
    code, out, err = nowhere("verdicts", "capacity", "--json")
    assert code == 0
    assert json.loads(out)["counts"]["reproduced"] > 0
    assert (
        err
        == "no database at attnbench.db yet, so these are the rows shipped with attnbench; `attnbench run` measures\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [("--no-measured",), ("--db", "attnbench.db"), ("--db", "sqlite:///attnbench.db")]
)
def test_a_database_that_was_named_or_is_all_there_may_be_must_exist(nowhere, arguments):
    code, out, err = nowhere("verdicts", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("attnbench: BadDatabase: no database at ")


def test_a_database_named_in_the_environment_must_exist(nowhere, monkeypatch):
    monkeypatch.setenv("ATTNBENCH_DB", "gone.db")
    code, _, err = nowhere("verdicts")
    assert code == 2
    assert err.startswith("attnbench: BadDatabase: no database at gone.db")
