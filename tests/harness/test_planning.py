"""`attnbench plan`: what cases would cost, where each figure comes from, and that nothing is done for it."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import costed
import pytest
from rich.console import Console

from attnbench.harness import estimates, planning, rates
from attnbench.harness.costs import Cost, Trial
from attnbench.harness.data import fetch
from attnbench.harness.errors import BadDatabase, BadParameter, Unsupported
from attnbench.harness.plan import Request, plan
from attnbench.harness.planning import Line, Wishes, lines_of, print_lines
from attnbench.harness.progress import Log
from attnbench.harness.rates import Rate
from attnbench.harness.rows import Attempt, Status
from attnbench.harness.running import Options, planned_cases
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Run, Store
from attnbench.suites import find_suites
from attnbench.variants.registry import find

SUITES = {"costed": costed.COSTED}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # nothing may be downloaded
    monkeypatch.setattr(fetch, "_downloads", None)
    yield
    assert not (tmp_path / "attnbench.db").exists() or (tmp_path / "stored").exists()


def lines(wishes: Wishes | None = None, **request: Any) -> dict[str, Line]:
    """The lines by variant and parameters."""
    found = lines_of(SUITES, Request(**request), wishes or Wishes("attnbench.db", may_lack_database=True))
    return {f"{line.variant} {line.parameters}": line for line in found}


def at(tflops: float) -> Wishes:
    return Wishes("attnbench.db", tflops, may_lack_database=True)


def shown(**request: Any) -> str:
    console = Console(file=io.StringIO(), width=120)
    asked = Request(**request)
    print_lines(lines_of(SUITES, asked, at(1)), asked, SUITES, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def settings(**chosen: Any) -> dict[str, tuple[Any, ...]]:
    return {name: values if isinstance(values, tuple) else (values,) for name, values in chosen.items()}


# What is counted.


def test_a_model_that_two_cases_evaluate_is_trained_once() -> None:
    one = lines(variants=("linear",))["linear 1000"]
    # points width=1 with reads 0 and 1000: one training of 3.6e15, evaluations of 0 and 1000
    assert (one.cases, one.tokens, one.flops) == (2, 500, costed.TRAINING + 1000)


def test_each_seed_trains_a_model_of_its_own() -> None:
    one = lines(variants=("linear",), seeds=(0, 1, 2))["linear 1000"]
    assert (one.cases, one.tokens, one.flops) == (6, 1500, 3 * (costed.TRAINING + 1000))


def test_cases_with_other_parameters_stand_in_a_line_of_their_own() -> None:
    assert list(lines()) == ["softmax 1000", "linear 1000", "nobody None", "softmax 2000", "linear 2000"]
    assert lines()["softmax 2000"].form == "sdpa"
    assert lines()["softmax 2000"].flops == 2 * costed.TRAINING


def test_what_cannot_be_counted_is_told_and_guessed() -> None:
    one = lines(at(1), variants=("linear",), settings=settings(width=14), scale="smoke")["linear None"]
    assert one.notes == ("cannot be counted: ValueError: not a number",)
    assert (one.flops, one.hours, one.origins) == (None, 2.0, ("guess",))


def test_a_mistake_in_what_is_asked_is_raised() -> None:
    with pytest.raises(BadParameter, match=r"width 13 is bad luck\."):
        lines(settings=settings(width=13))


def test_a_case_that_would_be_skipped_costs_nothing() -> None:
    found = lines(at(1), variants=("softmax", "linear"), forms=("sdpa",), scale="smoke")
    one = found["linear None"]
    assert (one.hours, one.origins) == (0.0, ("skipped",))
    assert one.notes[0].startswith("linear has no form 'sdpa'; it has ")
    assert found["softmax 1000"].hours == 1.0


# Where hours come from.


def test_flops_at_a_given_rate_are_hours() -> None:
    # 3.6e15 FLOPs at 1e12 a second are 3600 s
    one = lines(at(1), variants=("linear",), scale="smoke")["linear 1000"]
    assert (one.hours, one.hours_left, one.origins) == (1.0, 1.0, ("1 TFLOP/s, given",))
    assert lines(at(50), variants=("linear",), scale="smoke")["linear 1000"].hours == pytest.approx(0.02)


def test_several_processes_share_the_work_at_that_rate_each() -> None:
    one = lines(at(1), variants=("linear",), scale="smoke", device="cpu*4")["linear 1000"]
    assert (one.hours, one.origins) == (0.25, ("1 TFLOP/s on each of 4, given",))


def test_without_rate_and_database_there_is_the_guess_of_the_grid() -> None:
    found = lines(variants=("linear",), scale="smoke", seeds=(0, 1))
    assert (found["linear 1000"].hours, found["linear 1000"].origins) == (4.0, ("guess",))
    # a reference trains nothing, so the guess is not for it
    assert (found["nobody None"].hours, found["nobody None"].origins) == (None, ("not known",))


def with_trial(lab: Any) -> Cost:
    trial = Trial(8, lambda sequences: lambda: None, lambda sequences: 1)
    return Cost(1000, 500, 5, costed.TRAINING, trial=trial)


def tries() -> Wishes:
    return Wishes("attnbench.db", tries=True, may_lack_database=True)


def test_a_probe_tries_the_steps_of_each_kind_of_case_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def step_rate(trial: Trial, stopwatch: object) -> Rate:
        tried.append(trial.batch)
        return Rate(2e12, "steps of 8 sequences")

    monkeypatch.setattr(costed, "cost", with_trial)
    monkeypatch.setattr(rates, "step_rate", step_rate)
    found = lines(tries(), scale="smoke", seeds=(0, 1))
    assert tried == [8, 8]
    assert found["linear 1000"].hours == 1.0
    assert found["linear 1000"].origins == ("2 TFLOP/s, steps of 8 sequences",)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Unsupported("it does not fit"), "a step failed: Unsupported: it does not fit"),
        (RuntimeError("no\nkernel"), "a step failed: RuntimeError: no"),
        (None, "there is no step to try"),
    ],
)
def test_where_no_step_can_be_tried_matrix_products_say_what_it_takes_at_least(
    monkeypatch: pytest.MonkeyPatch, failure: Exception | None, told: str
) -> None:
    def step_rate(trial: Trial, stopwatch: object) -> Rate:
        assert failure is not None
        raise failure

    if failure is not None:
        monkeypatch.setattr(costed, "cost", with_trial)
    monkeypatch.setattr(rates, "step_rate", step_rate)
    products = Rate(4e12, "products of 512 x 512 matrices")
    monkeypatch.setattr(rates, "product_rate", lambda device, stopwatch: products)
    one = lines(tries(), variants=("linear",), scale="smoke")["linear 1000"]
    assert one.hours == 0.25
    assert one.origins == (f"4 TFLOP/s, products of 512 x 512 matrices, which models are slower than; {told}",)


def test_a_probe_leaves_the_number_of_threads_as_it_was() -> None:
    import torch

    before = torch.get_num_threads()
    assert estimates.tried_rates([], lambda text: None) == {}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("wishes", "told"),
    [
        (Wishes("x.db", 5.0, tries=True), r"--tflops gives the throughput and --probe measures it\. Use one of them\."),
        (at(0), r"a throughput is a number of TFLOP/s above 0, got 0\. Use 50\."),
        (at(-1), "got -1"),
        (at(float("nan")), "got nan"),
        (at(float("inf")), "got inf"),
    ],
)
def test_a_throughput_that_is_none_is_refused(wishes: Wishes, told: str) -> None:
    with pytest.raises(BadParameter, match=told):
        lines(wishes)


# The database.


def stored(
    tmp_path: Path, *endings: tuple[str, Point, float], status: Status = Status.OK, device: str = "cpu", seed: int = 0
) -> None:
    """A database in which these cases of the suite, at quick scale, took so many seconds."""
    (tmp_path / "stored").touch()
    asked = {
        str((one.case.variant, one.case.point)): one for one in plan(SUITES, Request(seeds=(seed,), device="cpu"), find)
    }
    with Store.open(tmp_path / "attnbench.db", writes=True) as store:
        store.begin_run(Run("run", "attnbench run", datetime.now(UTC)))
        for variant, point, seconds in endings:
            (planned,) = planned_cases(
                [asked[str((variant, point))]], Options("attnbench.db", offline=True), Log(stderr=True)
            )
            case = Case(**{**vars(planned.case), "device": device})
            store.append("run", Attempt(case, planned.identity, status, seconds=seconds), owner="me")
        store.end_run("run", "finished")


POINT = Point(width=1, reads=0)


def test_cases_that_are_in_the_database_are_done_and_say_what_they_take(tmp_path: Path) -> None:
    stored(tmp_path, ("linear", POINT, 3600.0))
    one = lines(variants=("linear",), only=settings(width=1, reads=0), seeds=(0, 1))["linear 1000"]
    # seed 0 is done and took an hour, and seed 1 is the same case with other dice
    assert (one.cases, one.done, one.hours, one.hours_left, one.origins) == (2, 1, 2.0, 1.0, ("database",))


def test_a_case_takes_what_its_variant_took_at_other_points_where_nothing_better_is_known(tmp_path: Path) -> None:
    stored(tmp_path, ("linear", POINT, 100.0), ("linear", Point(width=1, reads=1000), 7200.0 - 100.0))
    one = lines(variants=("linear",))["linear 2000"]
    assert (one.done, one.hours, one.origins) == (0, 1.0, ("database, at other points",))
    assert lines(variants=("softmax",))["softmax 2000"].origins == ("guess",)


def test_a_rate_comes_before_the_database(tmp_path: Path) -> None:
    stored(tmp_path, ("linear", POINT, 5.0))
    one = lines(at(1), variants=("linear",), only=settings(width=1, reads=0))["linear 1000"]
    assert (one.done, one.hours, one.hours_left) == (1, 1.0, 0.0)


@pytest.mark.parametrize(
    "more", [{"status": Status.ERROR}, {"status": Status.DIVERGED}, {"device": "cuda"}, {"device": "cpu*2"}]
)
def test_failures_and_other_devices_say_nothing_of_the_time(tmp_path: Path, more: dict[str, Any]) -> None:
    stored(tmp_path, ("linear", POINT, 5.0), **more)
    assert lines(variants=("linear",))["linear 1000"].origins == ("guess",)


def test_which_of_several_gpus_it_was_does_not_matter() -> None:
    assert estimates._alike("cuda:1") == estimates._alike("cuda") != estimates._alike("cuda*2")


def test_a_database_that_was_named_has_to_be_there() -> None:
    with pytest.raises(BadDatabase, match=r"no database at mine\.db"):
        lines(Wishes("mine.db"))


def test_whether_a_case_is_done_is_not_known_without_its_data_and_nothing_is_fetched(tmp_path: Path) -> None:
    stored(tmp_path)
    found = lines(variants=("linear",), scale="standard")
    # the Bible would have to be downloaded, Python's manual is here
    assert (found["linear 1000"].done, found["linear 2000"].done) == (None, 0)
    words = " ".join(shown(variants=("linear",), scale="standard").split())
    assert "?: whether they are done hangs on a data set that is not here." in words


def test_without_a_database_nothing_is_done_whatever_data_are_here() -> None:
    assert lines(variants=("linear",), scale="standard")["linear 1000"].done == 0


# What is shown.


def test_a_table_a_suite_says_where_each_time_comes_from_and_ends_with_the_sum() -> None:
    text = shown(variants=("linear",), settings=settings(width=1), scale="quick")
    words = [" ".join(line.split()) for line in text.splitlines()]
    assert "Costed, quick" in words
    # 3.6e15 + 1000 FLOPs at 1 TFLOP/s: an hour for two cases
    assert "linear chunkwise 2 0 1k 500 2 GiB 3.6e+15 30 min 1 h 1 TFLOP/s, given" in words
    assert "sum 4 0 3.6e+15 1 h" in words
    assert "4 cases, 0 done before: 1 h one after the other on cpu, 1 h of it left." in text
    assert "Of 2 of them the time is not known." in text
    assert "attention under" in text


def test_a_narrow_terminal_breaks_no_figure() -> None:
    asked = Request(scale="quick", variants=("linear",))
    wide, narrow = (Console(file=io.StringIO(), width=width) for width in (400, 40))
    for console in (wide, narrow):
        print_lines(lines_of(SUITES, asked, at(1)), asked, SUITES, console)
    rows = [
        [line.split() for line in console.file.getvalue().splitlines() if "TFLOP/s, given" in line]  # type: ignore[attr-defined]
        for console in (wide, narrow)
    ]
    assert rows[0] == rows[1] != []
    assert narrow.width == 40


def test_a_suite_that_cannot_count_has_no_columns_for_it() -> None:
    console = Console(file=io.StringIO(), width=100)
    request = Request(suites=("capacity",), scale="smoke")
    print_lines(lines_of(find_suites(), request, at(1)), request, find_suites(), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "FLOPs" not in text
    assert "parameters" not in text
    assert "guess" in text


@pytest.mark.parametrize(
    ("hours", "text"),
    [(None, "–"), (0.0, "0 s"), (7.5 / 3600, "7.5 s"), (0.5, "30 min"), (12.34, "12.3 h"), (12345.6, "12,346 h")],
)
def test_time_is_told_in_the_unit_that_suits_it(hours: float | None, text: str) -> None:
    assert planning._duration(hours) == text


@pytest.mark.parametrize(
    ("count", "text"), [(None, "–"), (999, "999"), (44_018_394, "44.02M"), (12_288_000_000, "12.29G"), (1000, "1k")]
)
def test_large_numbers_are_told_in_four_digits(count: int | None, text: str) -> None:
    assert planning._short(count) == text


def test_json_has_every_figure_and_the_sum() -> None:
    console = Console(file=io.StringIO())
    request = Request(scale="smoke", variants=("linear",))
    planning.plan_suites(SUITES, request, at(1), console, as_json=True)
    told = json.loads(console.file.getvalue())  # type: ignore[attr-defined]
    assert (told["scale"], told["device"]) == ("smoke", "cpu")
    assert told["lines"][0] == {
        "suite": "costed",
        "variant": "linear",
        "form": "chunkwise",
        "cases": 1,
        "done": 0,
        "parameters": 1000,
        "tokens": 500,
        "flops": costed.TRAINING,
        "hours": 1.0,
        "hours_left": 1.0,
        "origins": ["1 TFLOP/s, given"],
        "notes": [],
        "peak_bytes": 2**31,
        "exceeds": "",
    }
    assert told["sum"] == {
        "cases": 2,
        "done": 0,
        "flops": costed.TRAINING,
        "hours": 1.0,
        "hours_left": 1.0,
        "unknown": 1,
        "uncounted": 1,
    }


def test_planning_imports_no_torch_before_something_is_counted() -> None:
    code = "import sys, attnbench.harness.planning; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# The command.

Attnbench = Callable[..., tuple[int, str, str]]


def test_the_command_plans_and_writes_nothing(attnbench: Attnbench, tmp_path: Path) -> None:
    code, out, err = attnbench("plan", "capacity", "--scale", "smoke", "--variant", "delta")
    assert (code, err) == (0, "")
    assert "delta" in out
    assert "done before" in out
    assert list(tmp_path.iterdir()) == []


def test_the_command_takes_a_missing_database_only_where_nobody_named_one(attnbench: Attnbench) -> None:
    code, _, err = attnbench("plan", "capacity", "--scale", "smoke", "--db", "mine.db")
    assert (code, err) == (2, "attnbench: BadDatabase: no database at mine.db; `attnbench run` makes one.\n")


def test_the_command_tells_json(attnbench: Attnbench) -> None:
    code, out, _ = attnbench("plan", "capacity", "--scale", "paper", "--only", "pairs=20,600", "--json")
    assert code == 0
    # 8 variants at two points
    assert json.loads(out)["sum"]["cases"] == 16
