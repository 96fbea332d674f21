"""The page, read as a browser would."""

import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from types import SimpleNamespace

import pytest

from attnbench.harness.rows import Status
from attnbench.harness.spec import Point
from attnbench.reports.failures import failures_of
from attnbench.reports.page import page
from attnbench.reports.parts import parts_of
from attnbench.reports.provenance import command_of, machines_of

EVIL = '<script>alert("x")</script><img src="http://evil.example/x.png" onerror="y">'


class Read(HTMLParser):
    """The elements of a page with their attributes, its text, and whatever was left open or closed twice."""

    VOID = frozenset({"meta", "link", "br", "wbr", "img", "hr", "input", "path", "use"})

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.open, self.wrong = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text.append(data)

    def words(self):
        return " ".join("".join(self.text).split())

    def every(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def run(**more):
    facts = {
        "id": "run-1",
        "command": "attnbench run capacity",
        "started_at": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        "ended_at": datetime(2026, 1, 2, 3, 14, tzinfo=UTC),
        "state": "finished",
        "machine": {"cpu": "AMD EPYC 7B13", "cores": 2, "memory_bytes": 8 * 2**30},
        "device": {},
        "driver": "",
        "versions": {"torch": "2.13.0", "numpy": "2.4.6"},
        "commit": "81137f0",
        "is_dirty": False,
        "environment": {"OMP_NUM_THREADS": "1"},
    }
    return SimpleNamespace(**{**facts, **more})


@pytest.fixture
def rows(made):
    rows = []
    for variant, loss in (("linear", 0.25), ("dpfp-nu1", 0.005)):
        for number in (20, 60):
            for seed in (0, 1):
                numbers = {"retrieval_loss": loss, "training_steps": 100}
                rows += made.attempt("capacity", variant, made.pairs(number), numbers, seed=seed)
    rows += made.attempt("capacity", "gated", made.pairs(20), status=Status.DIVERGED, reason="not finite at step 7")
    rows += made.attempt("language_modelling", "linear", Point(context=64), {"word_perplexity": 310.0})
    rows += made.attempt("language_modelling", "bigram", Point(context=64), {"word_perplexity": 300.0}, form="count")
    return rows


@pytest.fixture
def read(made, rows):
    return Read(page(rows, made.suites, [run()]))


def test_the_page_says_what_was_asked_on_what_machine(read):
    words = read.words()
    assert "How many pairs fit into a memory of fixed size?" in words
    assert "11 cases of 3 variants, quick scale on cpu: 10 ok, 1 diverged." in words
    for fact in ("AMD EPYC 7B13", "8.00 GiB", "torch 2.13.0, numpy 2.4.6", "81137f0", "OMP_NUM_THREADS=1"):
        assert fact in words


def test_the_summary_has_a_headline_for_each_suite(read):
    words = read.words()
    assert "pairs still retrieved (loss ≤ 0.01)" in words
    assert "word perplexity at context 64" in words


def test_numbers_are_there_for_machines_too(read):
    values = {float(attributes["value"]) for attributes in read.every("data")}
    assert {0.25, 0.005, 310.0, 300.0, 100.0} <= values


def test_a_failure_is_told_in_words_with_its_place(read):
    assert "gated, pairs 20; seed 0: diverged: not finite at step 7" in read.words()


def test_a_model_above_the_bigram_floor_is_marked(read):
    assert "above the bigram floor: compares nothing" in read.words()


def test_each_number_says_how_to_make_it_again(read):
    words = read.words()
    assert "attnbench run capacity --variant dpfp-nu1 --form chunkwise --scale quick --seed 1" in words
    assert "run-1" in words
    assert "c0dec0dec0de" in words
    assert "da7ada7ada7a" in words


def test_the_page_loads_nothing(made, rows, read):
    for tag, attributes in read.elements:
        for name in ("src", "srcset", "data", "poster", "action", "xlink:href"):
            assert name not in attributes, (tag, name)
        assert tag not in {"iframe", "object", "embed", "img", "image", "base"}
        if tag != "a" and "href" in attributes:
            assert attributes["href"] in {"data:,"} or attributes["href"].startswith("#")
    text = page(rows, made.suites, [run()])
    assert "@import" not in text
    assert "fetch(" not in text
    assert "XMLHttpRequest" not in text
    (policy,) = [one["content"] for one in read.every("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "script-src 'sha256-" in policy
    assert "'unsafe-inline'" not in policy.replace("style-src-attr 'unsafe-inline'", "")
    assert set(re.findall(r"url\((.)", text)) <= {"#"}


def test_every_element_is_closed_and_every_id_is_there_once(read):
    assert not read.wrong
    assert not read.open
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in read.every("a"):
        assert attributes["href"].removeprefix("#") in ids


def test_tables_and_figures_speak_to_a_screen_reader(read):
    assert read.every("html")[0]["lang"] == "en"
    assert all("scope" in attributes for attributes in read.every("th"))
    drawings = [attributes for attributes in read.every("svg") if attributes.get("aria-hidden") != "true"]
    assert drawings
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawings)
    for _, attributes in read.elements:
        if attributes.get("role") == "region":
            assert attributes["aria-label"]
            assert attributes["tabindex"] == "0"


def test_names_reasons_titles_and_machines_made_of_markup_stay_text(made):
    rows = made.attempt("capacity", EVIL, made.pairs(20, **{EVIL: EVIL}), {"retrieval_loss": 0.25}, form=EVIL, run=EVIL)
    rows += made.attempt("capacity", EVIL, made.pairs(60), status=Status.ERROR, reason=EVIL, form=EVIL, run=EVIL)
    rows += made.attempt(EVIL, "linear", made.pairs(60), {"retrieval_loss": 0.25}, device=EVIL, scale=EVIL)
    facts = run(id=EVIL, command=EVIL, machine={EVIL: EVIL}, environment={EVIL: EVIL}, commit=EVIL, state=EVIL)
    text = page(rows, made.suites, [facts], title=EVIL, database=EVIL)
    read = Read(text)
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"img"}
    assert list(read.every("script")) == [{"type": "application/json", "id": "data"}, {}]
    assert all(not name.startswith("on") for _, attributes in read.elements for name in attributes)
    assert not read.wrong
    assert EVIL in "".join(read.text)


def test_the_same_rows_give_the_same_page(made, rows):
    assert page(rows, made.suites, [run()]) == page(rows, made.suites, [run()])


def test_an_empty_database_gives_a_page_that_says_what_to_run(made):
    read = Read(page([], made.suites, [], database="my results.db"))
    assert "attnbench run --db 'my results.db'" in read.words()
    assert not read.wrong


def test_rows_of_a_suite_that_the_database_does_not_describe_are_shown_all_the_same(made):
    rows = made.attempt("of_mine", "linear", Point(pairs=20), {"retrieval_loss": 0.25})
    rows += made.attempt("of_theirs", "linear", Point(pairs=20), status=Status.ERROR, reason="no")
    words = Read(page(rows, made.suites)).words()
    assert "of mine" in words
    assert "linear 0.250" in words
    assert "linear error" in words
    assert "error: no" in words


def test_suites_come_in_the_order_of_quality_and_then_cost(made):
    rows = made.attempt("speed", "a", Point(tokens=1), {"training_tokens_per_second": 1.0})
    rows += made.attempt("memory", "a", Point(tokens=1), {"training_peak_bytes": 1.0})
    rows += made.attempt("capacity", "a", made.pairs(1), {"retrieval_loss": 1.0})
    parts = parts_of(rows, sorted(made.suites, key=lambda suite: suite.name))
    assert [part.suite.name for part in parts] == ["capacity", "speed", "memory"]


def test_two_scales_of_a_suite_stand_in_sections_of_their_own(made):
    rows = made.attempt("capacity", "a", made.pairs(8), {"retrieval_loss": 0.4}, scale="smoke")
    rows += made.attempt("capacity", "a", made.pairs(20), {"retrieval_loss": 0.2})
    words = Read(page(rows, made.suites)).words()
    assert words.index("quick scale on cpu") < words.index("smoke scale on cpu")


def test_alike_endings_are_told_once_with_all_their_places(made):
    rows = []
    for number in (20, 60):
        for seed in (0, 1):
            rows += made.attempt("capacity", "a", made.pairs(number), status=Status.TIMEOUT, reason="300 s", seed=seed)
    (found,) = failures_of(rows, "pairs")
    assert (found.places, found.words, found.count) == ("pairs 20, 60; seeds 0, 1", "timeout: 300 s", 4)


def test_a_command_is_safe_to_paste_and_names_a_device_that_is_not_the_cpu(made):
    (row,) = made.attempt("capacity", "my file.py:VARIANT", made.pairs(20), device="cuda")
    assert command_of(row) == (
        "attnbench run capacity --variant 'my file.py:VARIANT' --form chunkwise --scale quick --seed 0 --device cuda "
        "--rerun always"
    )
    (row,) = made.attempt("speed", "linear", Point(tokens=32, phase="decoding"), form="step")
    assert command_of(row, ["phase"]) == (
        "attnbench run speed --variant linear --form step --scale quick --seed 0 --only phase=decoding --rerun always"
    )
    (row,) = made.attempt("language_modelling", "bigram", Point(context=64), form="count")
    assert command_of(row) == "attnbench run language_modelling --scale quick --seed 0 --rerun always"


def test_a_command_asks_the_case_again_as_it_was_asked(made):
    (row,) = made.attempt("capacity", "fading", made.pairs(11), form="recurrent")
    row = replace(row, facts={"address": "mine.py:VARIANT", "settings": "pairs=11,batch=4"})
    assert command_of(row) == (
        "attnbench run capacity --variant mine.py:VARIANT --form recurrent --scale quick --seed 0 --set pairs=11 --set batch=4 "
        "--rerun always"
    )
    # what was set by hand is no point of the grid
    assert command_of(row, ["pairs"]) == command_of(row)
    (row,) = made.attempt("speed", "linear", Point(tokens=32, timing="benchmark"), form="step")
    row = replace(row, facts={"door": "pytest"})
    assert command_of(row, ["timing"]) == ("pytest suites/speed.py --variant linear --form step --scale quick --seed 0")


def test_runs_on_one_machine_are_told_once_and_runs_without_rows_not_at_all(made, rows):
    runs = [run(), run(id="run-2"), run(id="elsewhere", machine={"cpu": "another"})]
    (machine,) = machines_of(rows, runs)
    assert [one.id for one in machine.runs] == ["run-1"]
    rows = rows + made.attempt("capacity", "a", made.pairs(20), run="run-2")
    (machine,) = machines_of(rows, runs)
    assert [one.id for one in machine.runs] == ["run-1", "run-2"]
    rows = rows + made.attempt("capacity", "a", made.pairs(20), run="elsewhere")
    assert len(machines_of(rows, runs)) == 2


def test_a_commit_with_changes_says_so(rows):
    (machine,) = machines_of(rows, [run(is_dirty=True)])
    assert dict(machine.facts)["commit"] == "81137f0, with changes that are in no commit"


def test_importing_the_reports_is_cheap():
    heavy = "{'torch', 'pandas', 'numpy', 'seaborn', 'matplotlib', 'scipy', 'jinja2', 'rich', 'sqlalchemy'}"
    code = f"""
import sys
import attnbench.reports.page, attnbench.reports.terminal, attnbench.reports.write
print(sorted({heavy} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_making_a_page_with_tables_and_figures_imports_no_torch():
    code = """
import sys
from datetime import UTC, datetime
from types import SimpleNamespace
from attnbench.harness.rows import Row, Status
from attnbench.harness.spec import Point
from attnbench.reports.page import page
rows = [
    Row(n, "r", "s", "linear", "chunkwise", Point(pairs=n), 0, "quick", "cpu", 1, Status.OK, "", "retrieval_loss", "1",
        "lower", 0.25, (), "c", "d", "", 1.0, datetime(2026, 1, 1, tzinfo=UTC))
    for n in (1, 2)
]
suite = SimpleNamespace(name="s", title="S", question="?", source="", axis="pairs", metrics=("retrieval_loss",))
assert "<svg" in page(rows, [suite])
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_headings_go_down_one_level_at_a_time_and_each_figure_has_a_name(made):
    rows = []
    for scale in ("quick", "standard"):
        for number in (20, 40, 60):
            rows += made.attempt("capacity", "linear", made.pairs(number), {"retrieval_loss": 0.2}, scale=scale)
    read = Read(page(rows, made.suites))
    levels = [int(name[1]) for name, _ in read.elements if re.fullmatch(r"h[1-6]", name)]
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    assert all(attributes.get("aria-label") for attributes in read.every("figure"))
