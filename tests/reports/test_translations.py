"""Translations on the page: text whatever they hold, told apart by variant and seed; BLEU paired by sentence."""

import json
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

from attnbench.harness.bleu import COLUMNS, SAMPLES, SIGNATURES, STATISTICS, to_json
from attnbench.harness.rows import Artefact
from attnbench.harness.spec import Point
from attnbench.reports.beside import beside_passage
from attnbench.reports.page import page
from attnbench.reports.paired import paired_table
from attnbench.reports.published import published
from attnbench.reports.tables import compares_nothing
from attnbench.reports.translations import translations_passage

POINT = Point(data="number-words", layers=2, beam=4)
EVIL = '<script>alert("x")</script><img src="https://evil.example/x.png" onerror="y">'
FACTS = SimpleNamespace(
    name="translation",
    axis="layers",
    metrics=("bleu",),
    title="Translation",
    question="How well?",
    source="arXiv:2102.11174",
)


class Read(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, attributes))

    def handle_data(self, data):
        self.text.append(data)


def sampled(made, texts, variant, translation, *, source="one", reference="eins", point=POINT, seed=0):
    rows = made.attempt("translation", variant, point, {"bleu": (10.0, 14.0)}, seed=seed)
    sample = [{"source": source, "reference": reference, "translation": translation}]
    texts[rows[0].attempt_id] = [
        Artefact(SAMPLES, "application/json", json.dumps(sample)),
        Artefact(SIGNATURES, "application/json", json.dumps({"bleu": "nrefs:1|case:mixed"})),
    ]
    return rows


def test_what_models_and_people_wrote_stays_text_on_the_page(made):
    texts = {}
    rows = sampled(made, texts, "linear", EVIL, source=EVIL + " source", reference=EVIL + " reference")
    read = Read(page(rows, (FACTS,), numbers=(), texts=texts))
    scripts = [tag for tag, _ in read.tags if tag == "script"]
    without = Read(page(rows, (FACTS,), numbers=()))
    assert scripts == [tag for tag, _ in without.tags if tag == "script"]
    assert not [attributes for tag, attributes in read.tags if tag == "img" or "onerror" in dict(attributes)]
    words = "".join(read.text)
    assert words.count(EVIL) >= 3


def test_a_source_has_a_table_with_a_line_a_variant(made):
    texts = {}
    rows = [*sampled(made, texts, "linear", "zwei"), *sampled(made, texts, "delta", "eins")]
    (passage,) = translations_passage(rows, texts)
    (table,) = passage.tables
    assert table.title == "one"
    assert table.notes == ("Reference: eins",)
    assert {line.labels for line in table.lines} == {("linear", "zwei"), ("delta", "eins")}
    assert passage.paragraphs == ("Scores are signed: bleu: nrefs:1|case:mixed.",)


def test_seeds_and_settings_of_one_variant_are_told_apart(made):
    texts = {}
    wide = Point(**{**POINT, "beam": 8})
    rows = [
        *sampled(made, texts, "linear", "a"),
        *sampled(made, texts, "linear", "b", seed=1),
        *sampled(made, texts, "linear", "c", point=wide),
    ]
    (passage,) = translations_passage(rows, texts)
    assert [line.labels[1:] for line in passage.tables[0].lines] == [
        ("beam 4, seed 0", "a"),
        ("beam 8, seed 0", "c"),
        ("beam 4, seed 1", "b"),
    ]


def test_without_samples_there_is_nothing(made):
    assert translations_passage(sampled(made, {}, "linear", "eins"), {}) == ()


def test_table_1_stands_beside_what_was_measured_and_says_which_way_is_better(made):
    rows = sampled(made, {}, "linear", "eins")
    (passage,) = beside_passage(rows, FACTS, [one for one in published() if one.suite == "translation"])
    (table,) = passage.tables
    assert table.title == "Table 1"
    assert any("higher is better" in note for note in table.notes)
    (line,) = (line for line in table.lines if line.variant == "linear")
    assert [cell.value for cell in line.cells][2:] == [26.8, 14.0]


def statistics(right):
    """Sentences of five tokens, each wholly right or wholly wrong."""
    rows = np.tile([5, 5, 0, 0, 0, 0, 5, 4, 3, 2], (len(right), 1))
    rows[np.array(right, dtype=bool), 2:6] = [5, 4, 3, 2]
    assert rows.shape[1] == COLUMNS
    return rows


def scored(made, texts, variant, right):
    (row,) = made.attempt("translation", variant, POINT, {"bleu": 50.0})
    texts[row.attempt_id] = [Artefact(STATISTICS, "application/json", to_json(statistics(right)))]
    return row


def test_two_systems_are_paired_by_sentence(made):
    texts = {}
    worse = scored(made, texts, "linear", [True, False] * 50)
    better = scored(made, texts, "delta", [True, True, True, False] * 25)
    table = paired_table([(worse, better)], texts)
    (line,) = table.lines
    assert line.labels == ("linear", "delta", "0", "100")
    assert [cell.value for cell in line.cells[:3]] == pytest.approx([50.0, 75.0, 25.0])
    assert line.cells[4].text == "B"
    (same,) = paired_table([(worse, worse)], texts).lines
    assert same.cells[2].text == "+0.00"
    assert same.cells[4].text == "not told apart"


def test_what_has_no_sentences_or_others_is_not_paired(made):
    texts = {}
    one, short = scored(made, texts, "linear", [True] * 4), scored(made, texts, "delta", [True] * 3)
    (bare,) = made.attempt("translation", "softmax", POINT, {"bleu": 50.0})
    assert paired_table([(one, short), (one, bare)], texts) is None


def test_a_bleu_below_five_compares_nothing():
    assert compares_nothing(4.9, "bleu") == "a BLEU below 5 compares nothing"
    assert compares_nothing(5.0, "bleu") == compares_nothing(0.1, "chrf") == compares_nothing(None, "bleu") == ""
