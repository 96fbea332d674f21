"""What leaves the computer names no computer, no user and no folder, says the rest, and is nameless a second time."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from attnbench.harness.rows import Artefact, Identity, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Contents, StoredAttempt, StoredRun
from attnbench.harness.store.nameless import nameless, nameless_run

RUN = StoredRun("one", "attnbench run", datetime(2026, 1, 1, tzinfo=UTC), machine={"node": "box", "cpu": "AMD EPYC"})
CASE = Case("capacity", "mine", "recurrent", Point(pairs=20), seed=0, scale="quick")
ATTEMPT = StoredAttempt(CASE, Identity("code", "data"), Status.ERROR, run_id="one")


def command(given_command: str) -> str:
    return nameless_run(replace(RUN, command=given_command)).command


def variable(value: str) -> str:
    return nameless_run(replace(RUN, environment={"TORCH_HOME": value})).environment["TORCH_HOME"]


def reason(text: str) -> str:
    return nameless(Contents((RUN,), (), (replace(ATTEMPT, reason=text),))).attempts[0].reason


@pytest.mark.parametrize(
    ("given_command", "left"),
    [
        ("attnbench run -v /home/ada/rules/mine.py:VARIANT", "attnbench run -v mine.py:VARIANT"),
        ("attnbench run -v/home/ada/mine.py:VARIANT", "attnbench run -vmine.py:VARIANT"),
        ("attnbench run --db=/home/ada/bench.db --report /tmp/x/page.html", "attnbench run --db=bench.db --report page.html"),
        ("attnbench run '--db=/home/Ada Lovelace/my bench.db'", "attnbench run '--db=my bench.db'"),
        ("attnbench run --db ../../ada/bench.db", "attnbench run --db bench.db"),
        ("attnbench run --db '~/bench.db'", "attnbench run --db bench.db"),
        (r"attnbench run --db 'C:\Users\Ada L\bench.db'", "attnbench run --db bench.db"),
        ("attnbench run --db 'postgresql://ada:***@box:5432/bench?host=/run/box'", "attnbench run --db postgresql:///bench"),
        ("attnbench run --db postgresql+psycopg://ada@box", "attnbench run --db postgresql+psycopg:///"),
        ("attnbench run --db sqlite:////home/ada/bench.db", "attnbench run --db sqlite:///bench.db"),
        ("pytest suites/capacity.py --rootdir=/home/ada", "pytest suites/capacity.py '--rootdir=~'"),
        # a quote that does not end is no command line, but still a text
        ("attnbench run --db 'open /home/ada/bench.db", "attnbench run --db 'open bench.db"),
    ],
)  # fmt: skip
def test_of_a_path_in_a_command_its_last_part_is_left_and_of_a_server_the_database(
    given_command: str, left: str
) -> None:
    assert command(given_command) == left


@pytest.mark.parametrize(
    "kept",
    [
        "attnbench run capacity --set pairs=20,40 --scale paper -j 2",
        "attnbench run -v rules/mine.py:VARIANT --db bench.db",
        'pytest suites/ -k "delta and not slow" --benchmark-json=times.json',
    ],
)
def test_a_command_without_such_names_stays_letter_by_letter(kept: str) -> None:
    assert command(kept) == kept


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("/usr/lib/libjemalloc.so:/home/ada/lib/own.so", "libjemalloc.so:own.so"),
        ("/usr/lib/libjemalloc.so /home/ada/own.so", "libjemalloc.so own.so"),
        ("/home/Ada Lovelace/.cache/torch", "torch"),
        ("/home/ada/", "~"),
        ("/root", "~"),
        ("GPU-0f3c5a2e-9d41-4c55-8a53-c1f1d6e2b7a9,MIG-0f3c5a2e-9d41-4c55-8a53-c1f1d6e2b7a9", "GPU-*,MIG-*"),
        ("0,1", "0,1"),
        (":4096:8", ":4096:8"),
        ("expandable_segments:True", "expandable_segments:True"),
        ("{0}:4", "{0}:4"),
    ],
)
def test_a_variable_keeps_its_value_but_for_folders_and_serial_numbers(value: str, left: str) -> None:
    assert variable(value) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/home/Ada Lovelace/list.txt' (mine.py, line 3)",
            "FileNotFoundError: [Errno 2] No such file or directory: 'list.txt' (mine.py, line 3)",
        ),
        ("can't read /home/ada/x in /tmp/y; it isn't there", "can't read x in y; it isn't there"),
        ("https://pypi.org/simple cannot be reached", "https://pypi.org/simple cannot be reached"),
        ("https://ada@box/simple cannot be reached", "https:///simple cannot be reached"),
        ("loss 3/4 after 5 / 6 steps at 9 tokens/s", "loss 3/4 after 5 / 6 steps at 9 tokens/s"),
    ],
)
def test_a_reason_is_a_sentence_with_paths_cut_short(text: str, left: str) -> None:
    assert reason(text) == left


def test_the_node_is_left_out_and_texts_are_results_and_stay() -> None:
    note = Artefact("note", "text/plain", "/home/ada said so")
    tried = replace(ATTEMPT, facts={"address": "/home/ada/mine.py:VARIANT", "settings": "pairs=20"}, artefacts=(note,))
    left = nameless(Contents((RUN,), (), (tried,)))
    assert left.runs == (replace(RUN, machine={"cpu": "AMD EPYC"}),)
    assert left.attempts == (replace(tried, facts={"address": "mine.py:VARIANT", "settings": "pairs=20"}),)


@pytest.mark.parametrize(
    ("system", "left"),
    [
        ("Linux-6.1.0-adas-build-x86_64-with-glibc2.36", "Linux-6.1.0-x86_64-with-glibc2.36"),
        ("Linux-5.15.0-91-generic-x86_64-with-glibc2.35", "Linux-5.15.0-x86_64-with-glibc2.35"),
        ("Linux-6.1.0-x86_64-with-glibc2.36", "Linux-6.1.0-x86_64-with-glibc2.36"),
        ("a system of its own", "a system of its own"),
    ],
)
def test_a_kernel_keeps_its_number_and_not_the_name_of_its_build(system: str, left: str) -> None:
    run = replace(
        RUN, machine={"architecture": "x86_64", "os": system}, versions={"platform": system, "torch": "2.13.0"}
    )
    once = nameless_run(run)
    assert (once.machine["os"], once.versions) == (left, {"platform": left, "torch": "2.13.0"})
    assert nameless_run(once) == once


pieces = st.lists(
    st.sampled_from(["/home/ada", "/", "~", "..", " ", ":", "'", '"', "=", ",", "-v", "x.py", "C:\\", "http://", "@", "sql://", "\\", "?"]),
    max_size=8,
).map("".join)  # fmt: skip


@given(pieces)
@example("'/home/ada /home/ada'")
def test_what_is_nameless_is_left_alone(text: str) -> None:
    run = replace(RUN, command=text, environment={"TORCH_HOME": text})
    once = nameless(Contents((run,), (), (replace(ATTEMPT, reason=text, facts={"address": text}),)))
    assert nameless(once) == once
