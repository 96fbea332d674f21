"""`pytest suites/`: the cases of a suite as items, their rows in the database, the clock pytest-benchmark's."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Commands

from attnbench.harness.jobs import Settings
from attnbench.harness.rows import Row, Status
from attnbench.harness.store import RunState, Store

SUITES = Path(__file__).parent.parent.parent / "suites"
QUICKLY = ("--benchmark-min-rounds", "3", "--benchmark-max-time", "0.001", "--benchmark-calibration-precision", "1")


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    """The process whose forks are pytests here."""
    with Commands() as running:
        yield running


class Door:
    """A folder in which `pytest suites/...` is called, with its database."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self.folder = commands, folder
        self.database = folder / "attnbench.db"

    def pytest(self, suite: str, *arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
        """Exit code and what was said."""
        command = self.commands.start(
            str(SUITES / suite),
            *arguments,
            *("-p", "no:cacheprovider", "--color", "no"),
            folder=self.folder,
            program="pytest",
            environment={"COLUMNS": "200", **(environment or {})},
        )
        return command.wait(), command.output() + command.errors()

    def rows(self) -> list[Row]:
        with Store.open(self.database, writes=False) as store:
            return store.rows()


@pytest.fixture(scope="module")
def timed(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> tuple[Door, int, str]:
    """A call that times the decoding of one variant and keeps what pytest-benchmark can keep."""
    door = Door(commands, tmp_path_factory.mktemp("timed"))
    storage = ("--benchmark-json", "bench.json", "--benchmark-autosave", "--benchmark-storage", "saved")
    code, said = door.pytest("speed.py", "-k", "delta and decoding", "-v", *QUICKLY, *storage)
    return door, code, said


@pytest.fixture
def door(commands: Commands, tmp_path: Path) -> Door:
    return Door(commands, tmp_path)


LABEL = "delta-step-batch=1,cache=as_left,heads=2,key_width=16,phase=decoding,timing=benchmark,tokens=32-seed0"


def test_an_item_is_named_by_its_variant_form_and_point(timed: tuple[Door, int, str]) -> None:
    _, code, said = timed
    assert code == 0, said
    assert f"speed.py::test_speed[{LABEL}] PASSED" in said
    # three variants in four phases, of which -k chose one
    assert "1 passed, 11 deselected" in said


def test_what_was_timed_lies_in_the_database_with_its_samples_and_as_timed_by_benchmark(
    timed: tuple[Door, int, str],
) -> None:
    row, share = timed[0].rows()
    assert (row.suite, row.variant, row.form, row.metric) == ("speed", "delta", "step", "decode_tokens_per_second")
    assert share.metric == "roofline_fraction"
    assert (row.status, row.point["timing"]) == (Status.OK, "benchmark")
    assert row.testbed
    assert len(row.samples) >= 3
    with Store.open(timed[0].database, writes=False) as store:
        (run,) = store.runs()
        assert [facts.name for facts in store.suites()] == ["speed"]
    assert run.state is RunState.FINISHED
    assert run.command.startswith("pytest ")
    # these cases ran in the pytest process, which does not have the workers' allocator
    assert "MALLOC_MMAP_MAX_" not in run.environment


def test_the_json_of_pytest_benchmark_has_the_same_samples_and_says_what_they_are(timed: tuple[Door, int, str]) -> None:
    door = timed[0]
    (benchmark,) = json.loads((door.folder / "bench.json").read_text(encoding="utf-8"))["benchmarks"]
    assert benchmark["extra_info"] == {"suite": "speed", "variant": "delta", "form": "step", "seed": 0}
    assert benchmark["group"] == "batch=1,cache=as_left,heads=2,key_width=16,phase=decoding,timing=benchmark,tokens=32"
    assert benchmark["param"] == LABEL
    assert benchmark["stats"]["rounds"] == len(benchmark["stats"]["data"])
    row, _ = door.rows()
    # one sequence, sixteen tokens decoded a call
    assert row.samples == pytest.approx([16 / seconds for seconds in benchmark["stats"]["data"]])


def test_a_saved_benchmark_is_compared_with(timed: tuple[Door, int, str]) -> None:
    door = timed[0]
    (saved,) = (door.folder / "saved").rglob("0001_*.json")
    assert json.loads(saved.read_text(encoding="utf-8"))["benchmarks"]
    compared = ("--benchmark-compare", "0001", "--benchmark-storage", "saved")
    code, said = door.pytest("speed.py", "-k", "delta and decoding", *QUICKLY, *compared)
    assert code == 0, said
    assert re.search(r"test_speed\[delta-step-.*\] \(0001_.*\)", said)
    assert re.search(r"test_speed\[delta-step-.*\] \(NOW\)", said)


def test_with_cold_caches_each_call_is_a_round_of_its_own(door: Door) -> None:
    code, said = door.pytest("speed.py", "-k", "delta and decoding", "--set", "cache=cold", *QUICKLY)
    assert code == 0, said
    row, _ = door.rows()
    assert row.point["cache"] == "cold"
    assert len(row.samples) == Settings().timing_rounds


def test_without_the_clock_a_speed_case_is_skipped_with_its_reason(door: Door) -> None:
    code, said = door.pytest("speed.py", "-k", "softmax and decoding", "--benchmark-disable", "-rs")
    assert code == 0, said
    assert "the clock was off (--benchmark-disable)" in said
    assert door.rows() == []


def test_other_suites_need_no_clock_and_take_the_wishes_of_attnbench_run(door: Door) -> None:
    wishes = ("--variant", "fwp1991", "--set", "pairs=2,3", "--seed", "7", "--form", "recurrent")
    code, said = door.pytest("capacity.py", *wishes, environment={"ATTNBENCH_DB": "mine.db"})
    assert code == 0, said
    assert "2 passed" in said
    door.database = door.folder / "mine.db"
    assert {(row.variant, row.form, row.point["pairs"], row.seed) for row in door.rows()} == {
        ("fwp1991", "recurrent", 2, 7),
        ("fwp1991", "recurrent", 3, 7),
    }


def test_an_isolated_case_runs_in_a_worker(door: Door) -> None:
    code, said = door.pytest("memory.py", "-k", "softmax and decoding")
    assert code == 0, said
    assert [(row.metric, row.status) for row in door.rows()] == [("decode_state_bytes", Status.OK)]
    with Store.open(door.database, writes=False) as store:
        assert [one.name for one in store.suites()] == ["memory"]


FAILING = """
from attnbench.variants.contract import Form, Variant

def recurrent(q, k, v, memory=None):
    {body}

VARIANT = Variant(
    name="mine", formula="o = v", source="none", forms={{"recurrent": Form(recurrent)}}, state_floats=lambda K, V, T: 0
)
"""


def test_a_failure_of_a_case_is_a_failure_of_its_item_with_the_reason_and_is_stored(door: Door) -> None:
    (door.folder / "mine.py").write_text(FAILING.format(body="return v.flip(1), {}"), encoding="utf-8")
    code, said = door.pytest("capacity.py", "--variant", "mine.py:VARIANT")
    assert code == 1
    assert re.search(r"^(E +)?wrong: causality: ", said, re.MULTILINE)
    assert "Traceback" not in said
    (row,) = door.rows()
    assert (row.status, row.reason.split(":")[0]) == (Status.WRONG, "causality")
    with Store.open(door.database, writes=False) as store:
        assert [run.state for run in store.runs()] == [RunState.FAILED]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--variant dleta", r"UnknownVariant: no variant 'dleta'\. Known: .* Did you mean 'delta'\?"),
        ("--scale quik", r"UnknownScale: no scale 'quik'\. Known: .* Did you mean 'quick'\?"),
        ("--device gpu", r"UnknownDevice: no device 'gpu'\. Known: .*"),
        ("--seed -1", r"BadParameter: a seed is a whole number from 0 to \d+, got -1\. Use 0\."),
        ("--set nosuch=1", r"BadParameter: no suite asked for has a setting 'nosuch'\. Known: .*"),
        ("--set timing=interleaved", r"BadParameter: setting timing says who held the clock, .*"),
        ("--form recurent", r"UnknownForm: none of the variants asked for has a form 'recurent'\. Known: .*"),
    ],
)
def test_a_mistake_is_one_usage_error_for_all_suites_and_nothing_is_written(
    door: Door, arguments: str, told: str
) -> None:
    code, said = door.pytest("", *arguments.split())
    assert code == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in said.splitlines() if "ERROR" in line]
    assert len(errors) == 1
    assert re.fullmatch(f"ERROR: {told}", errors[0])
    assert "Traceback" not in said
    assert not door.database.exists()


def test_a_setting_that_one_suite_has_leaves_the_others_as_they_are(door: Door) -> None:
    code, said = door.pytest("", "--set", "pairs=4", "--collect-only", "-q")
    assert code == 0, said
    names = [line.split("::")[1] for line in said.splitlines() if "::" in line]
    assert {name.split("[")[0] for name in names} == {
        f"test_{path.stem}"
        for path in SUITES.glob("*.py")
        if path.stem not in ("__init__", "conftest", "pytest_plugin")
    }
    assert {"pairs=4" in name for name in names if name.startswith("test_capacity")} == {True}
    assert not door.database.exists()


def test_only_keeps_the_points_that_have_a_value(door: Door) -> None:
    code, said = door.pytest("speed.py", "--only", "phase=decoding", "--collect-only", "-q")
    assert code == 0
    # one point for each of three variants; the door's own setting is put in afterwards
    items = [line for line in said.splitlines() if "::" in line]
    assert len(items) == 3
    assert all("phase=decoding" in item and "timing=benchmark" in item for item in items)
    code, said = door.pytest("speed.py", "--only", "phase=decodin", "--collect-only")
    assert code == 4
    assert "BadParameter: no point of the grids has phase=decodin" in said
