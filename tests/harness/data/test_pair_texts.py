"""Pairs of sentences from each source: which there are, in which order, and what is left out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.data import pair_texts
from attnbench.harness.data.pair_texts import joined, sides

SIDE = st.text(st.characters(codec="utf-8", exclude_characters="\t"), max_size=20)


@given(SIDE, SIDE)
def test_a_pair_comes_back_from_its_line(source, target):
    assert sides(joined(source, target)) == (source, target)


def test_a_side_with_a_tab_is_refused():
    with pytest.raises(ValueError, match=r"can hold no tab, got 'a\\tb' and 'c'"):
        joined("a\tb", "c")


def test_number_words_are_numbers_in_both_languages_always_the_same():
    documents = pair_texts.number_words()
    assert documents == pair_texts.number_words()
    assert {len(document) for document in documents} == {10}
    assert sum(map(len, documents)) == 8000
    for source, target in (sides(line) for line in documents[0]):
        assert len(source.split("; ")) == len(target.split("; ")) in {2, 3, 4}
    found = dict(
        pair for line in sum(documents, ()) for pair in zip(*(side.split("; ") for side in sides(line)), strict=True)
    )
    # units and tens swap, and a number is one word
    assert found["three hundred and twenty-one"] == "dreihunderteinundzwanzig"
    assert found["sixteen"] == "sechzehn"


def module(verses):
    """The World English Bible as its package has it, with these verses."""
    text, starts, ends = "", {}, {}
    for number, verse in verses.items():
        starts[number] = len(text)
        text += verse
        ends[number] = len(text)
    return f"bible = Bible(0, {text!r}, {starts!r}, {ends!r})\n".encode()


LUTHER = b"""\
1 Mose 1:1 Am Anfang war die Henne.
1 Mose 1:2 Und sie legte ein braunes Ei. {}
1 Mose 2:1 Ei.
2 Mose 1:1 Am Anfang war die Henne wieder.
"""


def test_verses_stand_beside_those_of_the_same_number_a_document_a_chapter():
    english = {
        1001001: "In the beginning was the hen.",
        1001002: "And she laid a brown egg.",
        1001003: "Luther has no such verse.",
        1002001: "An egg as short as this.",
        2001001: "In the beginning was the hen.",
    }
    # left out: without German, too short, and English that was there before
    assert pair_texts.bible_en_de(module(english), LUTHER) == (
        (
            "In the beginning was the hen.\tAm Anfang war die Henne.",
            "And she laid a brown egg.\tUnd sie legte ein braunes Ei.",
        ),
    )


def test_the_first_verse_of_a_psalm_is_left_out_since_luther_counts_its_title():
    books = "".join(f"Buch {book} 1:{verse} So war es im {verse}. Jahr.\n" for book in range(1, 20) for verse in (1, 2))
    english = {19_001_001: "So it was in year one.", 19_001_002: "So it was in year two."}
    assert pair_texts.bible_en_de(module(english), books.encode()) == (
        ("So it was in year two.\tSo war es im 2. Jahr.",),
    )


def test_a_line_that_is_no_verse_is_refused():
    with pytest.raises(ValueError, match="a line is not `Book C:V text`: 'Am Anfang'"):
        pair_texts.bible_en_de(module({1001001: "In the beginning was the hen."}), b"Am Anfang\n")


def member(component, language, tree):
    return f"homeassistant/components/{component}/translations/{language}.json", json.dumps(tree).encode()


def test_texts_under_one_key_are_a_pair_a_document_a_component():
    found = pair_texts.home_assistant_en_de(
        dict(
            [
                member(
                    "b", "en", {"step": {"title": "Set up  the hen", "same": "A B C"}, "only": "Nobody translated this"}
                ),
                member("b", "de", {"step": {"title": "Henne jetzt einrichten", "same": "A B C"}}),
                member("a", "en", {"title": "Choose your best egg", "again": "Choose your best egg", "id": "Egg"}),
                member("a", "de", {"title": "Bestes Ei auswählen", "again": "Ein anderes Ei auswählen", "id": "Ei"}),
                member("c", "en", {"title": "Only in English here"}),
            ]
        )
    )
    assert found == (("Choose your best egg\tBestes Ei auswählen",), ("Set up the hen\tHenne jetzt einrichten",))


def test_rows_of_the_hub_become_pairs_with_or_without_a_column_around_them():
    row = {"de": "Die Henne \n legt.", "en": "The hen lays."}
    line = "The hen lays.\tDie Henne legt."
    assert list(pair_texts.translations([row, {"translation": row}])) == [(line, line)]
    assert [len(one) for one in pair_texts.translations([row] * 2001)] == [1000, 1000, 1]
