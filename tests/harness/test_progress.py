"""How far a run is: lines in a log, a bar on a terminal, and how long it will still take."""

import io
import os
import re
from dataclasses import replace

import pytest
from rich.console import Console

from attnbench.harness.jobs import Outcome, Planned
from attnbench.harness.progress import Display, Log
from attnbench.harness.rows import Identity, Measurement, Status
from attnbench.harness.spec import Case, Point


def case(variant: str, suite: str = "capacity", *, expected_seconds: float = 10, seed: int = 0) -> Planned:
    point = Point(pairs=20, key_width=64, data="web-bible")
    one = Case(suite, variant, "chunkwise", point, seed, "quick")
    return Planned(one, Identity("", ""), "suite", variant, 600, expected_seconds, axis="pairs")


def well(seconds: float, metric: str = "retrieval_loss", value: float = 0.012345) -> Outcome:
    return Outcome(Status.OK, seconds=seconds, measurements=(Measurement(metric, value),))


@pytest.fixture
def log() -> Console:
    return Console(file=io.StringIO(), width=80)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_line_shows_the_metric_that_the_suite_is_read_by_whatever_was_measured_first(log: Console) -> None:
    todo = [replace(case("linear"), metrics=("retrieval_loss", "training_steps")), case("delta")]
    both = (Measurement("training_steps", 300.0), Measurement("retrieval_loss", 0.25))
    with Display(log, todo, 1) as display:
        for one in todo:
            display.over(one, Outcome(Status.OK, seconds=1.0, measurements=both))
    first, second = said(log).splitlines()
    assert "seed=0: retrieval_loss 0.25 (" in first
    assert "seed=0: training_steps 300 steps (" in second


def test_in_a_log_each_case_is_one_line_however_long_with_what_tells_it_from_others(log: Console) -> None:
    todo = [case("delta"), case("linear")]
    with Display(log, todo, 1) as display:
        display.over(todo[0], well(12.34))
        display.over(todo[1], Outcome(Status.ERROR, "ValueError: [red]not markup[/red] (delta.py, line 3)", 1.0))
    assert said(log).splitlines() == [
        "      1/2 ok            capacity delta data=web-bible pairs=20 form=chunkwise seed=0: retrieval_loss 0.01235 "
        "(12.3 s); about 12 s left",
        "      2/2 error         capacity linear data=web-bible pairs=20 form=chunkwise seed=0: ValueError: "
        "[red]not markup[/red] (delta.py, line 3) (1.0 s)",
    ]


def test_a_number_with_a_unit_is_told_with_it(log: Console) -> None:
    with Display(log, [case("delta")], 1) as display:
        display.over(case("delta"), well(1.0, "decode_tokens_per_second", 12345))
    assert "decode_tokens_per_second 1.234e+04 tokens/s (1.0 s)" in said(log)


def test_the_time_left_is_the_guess_of_the_suites_shared_by_the_workers(log: Console) -> None:
    todo = [case("delta", seed=seed, expected_seconds=60) for seed in range(8)]
    assert Display(log, todo, 2).time_left() == "about 4 min left"
    # eight workers have one case each; sixteen cannot be quicker
    assert Display(log, todo, 8).time_left() == "about 60 s left"
    assert Display(log, todo, 16).time_left() == "about 60 s left"
    assert Display(log, [], 2).time_left() == ""


def test_the_time_left_follows_what_the_cases_of_a_suite_have_taken(log: Console) -> None:
    # capacity takes three times what was guessed; rewrite is still believed
    todo = [case("delta"), case("linear"), case("softmax"), case("delta", "rewrite", expected_seconds=20)]
    display = Display(log, todo, 1)
    display.over(todo[0], well(30.0))
    assert display.time_left() == "about 80 s left"
    display.over(todo[3], well(5.0))
    assert display.time_left() == "about 60 s left"


def test_a_case_that_another_run_has_done_is_counted_and_costs_no_time(log: Console) -> None:
    todo = [case("delta"), case("linear"), case("softmax")]
    display = Display(log, todo, 1)
    display.already_done(todo[0])
    display.over(todo[1], well(10.0))
    assert said(log).startswith("      2/3 ok ")
    assert said(log).endswith("about 10 s left\n")


def test_a_terminal_has_a_bar_with_what_runs_how_far_it_is_and_the_time_left() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=140, color_system=None)
    todo = [case("delta"), case("linear"), case("softmax")]
    with Display(terminal, todo, 2) as display:
        display.doing(11, todo[0], 0.25, "step 25")
        display.doing(12, todo[1], 0.5, "step 50")
        assert display.bar is not None
        display.bar.refresh()
        display.over(todo[0], well(10.0))
        display.idle(11)
        display.doing(12, todo[1], 0.75, "step 75")
        display.bar.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said(terminal))
    assert re.search(r"capacity/delta 25% step 25\s.*\n\s*capacity/linear 50% step 50\s", shown)
    last = [line for line in shown.splitlines() if "capacity/linear 75%" in line][-1]
    assert re.fullmatch(r"\s*capacity/linear 75% step 75 .* 1/3 about 10 s left\s*", last)
    # the line of a case stands above the bar, without the time left that the bar shows
    assert re.search(r"1/3 ok +capacity delta .*: retrieval_loss 0\.01235 \(10\.0 s\)\s*$", shown, re.MULTILINE)


def test_many_cases_at_once_are_shown_in_one_line_without_what_they_say() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=200, color_system=None)
    todo = [case("delta", seed=seed) for seed in range(5)]
    with Display(terminal, todo, 5) as display:
        for worker, planned in enumerate(todo):
            display.doing(worker, planned, 0.25, f"step {worker}")
        assert display.bar is not None
        display.bar.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said(terminal)).splitlines()[-1]
    assert shown.count("capacity/delta 25%") == 5
    assert "step" not in shown


def test_a_case_that_runs_for_long_says_now_and_then_in_a_log_how_far_it_is(log: Console) -> None:
    now = 0.0
    todo = [case("delta"), case("linear")]
    with Display(log, todo, 1, clock=lambda: now) as display:
        for planned, times in ((todo[0], (0, 299, 300, 310, 600)), (todo[1], (700, 900))):
            for now in times:
                display.doing(1, planned, now / 1000, f"step {now}" if now != 300 else "")
    assert said(log).splitlines() == [
        "          running       capacity delta data=web-bible pairs=20 form=chunkwise seed=0: 30 %",
        "          running       capacity delta data=web-bible pairs=20 form=chunkwise seed=0: 60 %, step 600",
    ]


def test_a_reader_who_hangs_up_ends_the_run_and_hears_no_more() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="utf-8") as file:
        console = Log(file=file)
        console.print("heard")
        os.close(reading)
        with pytest.raises(KeyboardInterrupt):
            console.print("not heard")
        console.print("nor this")
