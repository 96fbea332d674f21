"""`attnbench run`: each case ends as what it is and is stored, whatever happens to it, to its worker and to the run."""

import re
from collections import Counter
from datetime import UTC, datetime

import pytest
from bench import DATABASE, Bench, planned
from commands import is_alive, until

from attnbench.harness.jobs import Planned
from attnbench.harness.rows import Attempt, Status
from attnbench.harness.store import Claim, Run, RunState, Store

# an owner on a machine that we cannot see, so that only the clock ends its leases
ELSEWHERE = "elsewhere:1:1"


# However a case ends.


ENDINGS = {
    "ends well": ("ok", ""),
    "lacks a device": ("skipped", r"fake/none needs cuda; this device is cpu\."),
    "loses its loss": ("diverged", r"the loss was not finite at step 3 \(last finite loss 0\.5\)"),
    "records nan": ("diverged", "retrieval_loss is nan"),
    "lacks memory": ("out_of_memory", "MemoryError: no message"),
    "lacks memory in torch": ("out_of_memory", r"RuntimeError: .*can't allocate memory: you tried to allocate \d+ bytes.*"),
    "talks about memory": ("error", r"ValueError: this text is not out of memory \(fake_suites\.py, line \d+\)"),
    "raises": ("error", r"ValueError: the fake is broken \(fake_suites\.py, line \d+\)"),
    "raises in torch": ("error", r"RuntimeError: einsum\(\).* \(fake_suites\.py, line \d+\)"),
    "records twice": ("error", r"ValueError: a case has one metric called 'retrieval_loss'.* \(lab\.py, line \d+\)"),
    "exits": ("error", r"SystemExit: that was it \(fake_suites\.py, line \d+\)"),
    "leaves": ("error", "the worker ended with exit code 3"),
    "is killed": ("error", "the worker was killed by SIGKILL"),
    "spins": ("timeout", r"took longer than 1 s"),
    "spins and talks": ("timeout", r"took longer than 1 s"),
    "starts a child and spins": ("timeout", r"took longer than 1 s"),
}  # fmt: skip


def test_every_ending_is_stored_as_what_it_is_and_the_rest_goes_on(bench: Bench) -> None:
    code, said = bench.run("fake", "-j", "2", "--timeout", "1", deeds=",".join(ENDINGS))
    stored = bench.endings()
    assert list(stored.keys() - ENDINGS.keys()) == []
    for deed, (status, reason) in ENDINGS.items():
        assert stored[deed][0] == status, (deed, stored[deed])
        assert re.fullmatch(reason, stored[deed][1]), (deed, stored[deed])
    assert (code, bench.states()) == (1, [RunState.FAILED])
    assert "ended: 2 diverged, 7 error, 1 ok, 2 out_of_memory, 1 skipped, 3 timeout\n" in said
    assert "failed: 7 error, 2 out_of_memory, 3 timeout; `--rerun failed` tries them again\n" in said
    # seven endings cost a worker each, and one worker started a child
    assert len(bench.pids()) >= 8
    until(lambda: not any(map(is_alive, bench.pids())))


def test_cases_that_ended_as_ok_skipped_or_diverged_are_no_failure(bench: Bench) -> None:
    code, said = bench.run("fake", deeds="ends well,lacks a device,loses its loss,records nan")
    assert (code, bench.states()) == (0, [RunState.FINISHED])
    assert said.splitlines()[-1] == "ended: 2 diverged, 1 ok, 1 skipped"


def test_what_a_case_had_measured_before_it_diverged_is_kept(bench: Bench) -> None:
    bench.run("fake", deeds="records nan")
    assert [(row.metric, row.value) for row in bench.rows()] == [("training_steps", 7)]


def test_an_ordinary_case_is_told_on_a_line_of_its_own_with_the_time_left(bench: Bench) -> None:
    _, said = bench.run("fake", "-j", "1", deeds="ends well,raises")
    lines = said.splitlines()
    assert lines[0] == f"2 cases, 0 done before; 1 worker on cpu; database {DATABASE}"
    assert re.fullmatch(
        r" +1/2 ok +fake nobody does=ends well number=1 form=count seed=0: retrieval_loss 0\.0009766 \(0\.\d s\); "
        r"about \d+ s left",
        lines[1],
    )
    assert re.fullmatch(r" +2/2 error +fake nobody does=raises .*: ValueError: .* \(\d\.\d s\)", lines[2])


def test_a_case_of_a_point_that_is_timed_together_takes_no_other_with_it(bench: Bench) -> None:
    code, _ = bench.run("fake_clock", "--timeout", "2")
    stored = bench.endings()
    assert stored["hangs"] == (Status.TIMEOUT, "took longer than 2 s")
    assert stored["dies"] == (Status.ERROR, "the worker was killed by SIGKILL")
    assert stored["fails"][0] is Status.ERROR
    assert stored["fails"][1].startswith("ValueError: the call fails (fake_suites.py, line ")
    assert (stored["steady"][0], stored["brisk"][0], code) == (Status.OK, Status.OK, 1)
    assert {len(row.samples) for row in bench.rows() if row.status is Status.OK} == {11}


# Workers.


def test_a_worker_serves_one_case_after_another(bench: Bench) -> None:
    assert bench.run("fake", "-j", "1", "--set", "number=1,2,3,4", deeds="ends well")[0] == 0
    assert len(bench.pids()) == 1


def test_an_isolated_case_has_a_process_of_its_own(bench: Bench) -> None:
    assert bench.run("fake", "-j", "2", "--isolate", "--set", "number=1,2,3,4", deeds="ends well")[0] == 0
    assert len(bench.pids()) == 4


def test_as_many_cases_run_at_once_as_were_asked_for_and_no_more(bench: Bench) -> None:
    bench.gate.touch()
    command = bench.start("fake", "-j", "3", "--set", "number=1,2,3,4,5", deeds="waits")
    until(lambda: len(bench.pids()) == 3)
    bench.gate.unlink()
    assert command.wait() == 0
    assert len(bench.pids()) == 3
    assert len(bench.attempts()) == 5


def test_the_clock_runs_when_every_other_worker_has_left(bench: Bench) -> None:
    # the fake clock refuses to start while it sees another worker
    bench.run("fake_clock", "fake", "-j", "2", "--timeout", "1", deeds="ends well,raises,records nan")
    stored = bench.attempts()
    assert [row.suite for row in stored] == ["fake"] * 3 + ["fake_clock"] * 5
    assert {(row.variant, row.status) for row in stored} >= {("steady", Status.OK), ("brisk", Status.OK)}


# Again.


def test_a_second_run_does_nothing_and_tells_failures_of_the_first(bench: Bench) -> None:
    first = bench.run("fake", deeds="ends well,raises")
    again = bench.run("fake", deeds="ends well,raises")
    assert (first[0], again[0], len(bench.attempts())) == (1, 1, 2)
    assert again[1] == (
        f"2 cases, 2 done before; 1 worker on cpu; database {DATABASE}\n"
        "failed: 1 error; `--rerun failed` tries them again\n"
    )
    # what does nothing leaves no run behind
    assert bench.states() == [RunState.FAILED]
    # the failure is not one of these
    assert bench.run("fake", deeds="ends well")[0] == 0


@pytest.mark.parametrize(
    ("rerun", "again"), [("missing", []), ("failed", ["raises"]), ("always", ["ends well", "loses its loss", "raises"])]
)
def test_a_rerun_does_what_it_names(bench: Bench, rerun: str, again: list[str]) -> None:
    deeds = "ends well,loses its loss,raises"
    bench.run("fake", deeds=deeds)
    bench.run("fake", "--rerun", rerun, deeds=deeds)
    assert sorted(str(row.point["does"]) for row in bench.attempts()[3:]) == again


def test_more_of_a_matrix_runs_only_what_is_missing(bench: Bench) -> None:
    bench.run("fake", "--set", "number=1,2", deeds="ends well")
    code, said = bench.run("fake", "--set", "number=1,2,3,4", deeds="ends well")
    assert code == 0
    assert said.startswith("4 cases, 2 done before; ")
    assert sorted(row.point["number"] for row in bench.attempts()) == [1, 2, 3, 4]


VARIANT = """
from attnbench.variants.contract import Form, Variant

def recurrent(q, k, v, memory=None):
    return {factor} * v, {{}}

VARIANT = Variant(
    name="echo", formula="o = v", source="none", forms={{"recurrent": Form(recurrent)}}, state_floats=lambda K, V, T: 0
)
"""


def test_a_changed_formula_is_measured_again_and_a_changed_comment_is_not(bench: Bench) -> None:
    path = bench.folder / "echo.py"

    def run_echo() -> str:
        _, said = bench.run("fake", "--variant", f"{path}:VARIANT", "--set", "number=1", deeds="ends well")
        return said.split(";")[0]

    path.write_text(VARIANT.format(factor=1), encoding="utf-8")
    # the variant has no form that the fake suite could use: one case is skipped, the other is the suite's reference
    assert run_echo() == "2 cases, 0 done before"
    path.write_text("# the identity\n" + VARIANT.format(factor=1), encoding="utf-8")
    assert run_echo() == "2 cases, 2 done before"
    path.write_text(VARIANT.format(factor=2), encoding="utf-8")
    assert run_echo() == "2 cases, 1 done before"


# Leases.


def lease(bench: Bench, deed: str, seconds: float) -> Planned:
    """A case that a run elsewhere is at, in a database of its own making."""
    (case,) = planned((deed,))
    with Store.open(bench.database, writes=True) as store:
        store.begin_run(Run("elsewhere", "attnbench run", datetime.now(UTC)))
        claim = store.claim(
            case.case, case.identity, run_id="elsewhere", owner=ELSEWHERE, lease_seconds=seconds, rerun="missing"
        )
    assert claim is Claim.CLAIMED
    return case


def test_a_case_that_another_run_is_at_is_waited_for_and_not_done_twice(bench: Bench) -> None:
    theirs = lease(bench, "raises", 600)
    command = bench.start("fake", deeds="ends well,raises")
    until(lambda: len(bench.attempts()) == 1)
    with Store.open(bench.database, writes=True) as store:
        failure = Attempt(theirs.case, theirs.identity, Status.ERROR, "it failed elsewhere")
        assert store.append("elsewhere", failure, owner=ELSEWHERE)
    # the failure is one of a case that was asked for, whoever ran it
    assert command.wait() == 1
    assert "\nwaiting for 1 case that another run is at\nended: 1 ok\nfailed: 1 error" in command.errors()
    assert bench.endings() == {"ends well": (Status.OK, ""), "raises": (Status.ERROR, "it failed elsewhere")}
    assert len(bench.attempts()) == 2


def test_a_case_whose_lease_ran_out_is_taken_over(bench: Bench) -> None:
    lease(bench, "ends well", 1)
    assert bench.run("fake", deeds="ends well")[0] == 0
    assert bench.endings() == {"ends well": (Status.OK, "")}


def test_four_runs_of_one_matrix_do_each_case_once(bench: Bench) -> None:
    numbers = ",".join(map(str, range(1, 61)))
    four = [bench.start("fake", "-j", "1", "--set", f"number={numbers}", deeds="ends well") for _ in range(4)]
    assert [command.wait() for command in four] == [0, 0, 0, 0]
    assert Counter(row.point["number"] for row in bench.attempts()) == dict.fromkeys(range(1, 61), 1)
    assert {row.status for row in bench.attempts()} == {Status.OK}
    # they shared the work
    assert len({row.run_id for row in bench.attempts()}) > 1
