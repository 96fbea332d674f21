import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.data import texts

# Made up, with the layout of the module that holds the real one: verse bcccvvv runs from its start to its end.
VERSES = {
    1001001: "The hen laid an egg.",
    1001002: " It was a   brown egg,    And the hen`s own.",
    1002001: " As a gift of first -[eggs] she gave it [even] to us.",
    18042001: " So ended the hen.                 BOOK I       Psalm 1",
    19001001: " Sing, hens!      Psalm 2  For the Chief Hen. A Psalm by the cock.",
    19002001: " Sing again, HENS.",
    19119001: " Clean is the coop.  BEIT",
    19119002: " Clean is the nest.  SIN AND SHIN",
}


def module(verses=VERSES, before="from nowhere import Bible\n\n"):
    """The source of a module that holds `verses` as one literal with offsets."""
    whole, starts, ends = "", {}, {}
    for number, verse in verses.items():
        starts[number] = len(whole)
        whole += verse
        ends[number] = len(whole)
    return f"{before}bible = Bible(\n    Version.MADE_UP,\n    {whole!r},\n    {starts},\n    {ends},\n    {{}},\n    False,\n)\n".encode()


lines = st.text(st.characters(exclude_characters="\n\f", exclude_categories=["Cs"]))
documents = st.lists(st.lists(lines, min_size=1).map(tuple)).map(tuple)


@given(documents)
def test_a_file_gives_back_the_documents_it_was_written_from(made):
    assert texts.from_bytes(texts.to_bytes(made)) == made


@given(documents)
def test_a_file_gives_its_documents_one_by_one_and_as_often_as_asked(tmp_path_factory, made):
    path = tmp_path_factory.mktemp("texts") / "a.txt"
    path.write_bytes(texts.to_bytes(made))
    stored = texts.StoredDocuments(path)
    assert tuple(stored) == tuple(stored) == made


def test_a_form_feed_stands_between_two_documents():
    assert texts.to_bytes((("a b", "c"), ("d",))) == b"a b\nc\n\f\nd\n"
    assert texts.to_bytes(()) == b""


def test_a_document_without_lines_is_refused():
    with pytest.raises(ValueError, match=r"^a document needs at least one line, got none$"):
        texts.to_bytes((("a",), ()))


@pytest.mark.parametrize("line", ["a\nb", "\f"])
def test_a_line_that_would_not_come_back_is_refused(line):
    with pytest.raises(ValueError, match=r"^a line can hold no line break and no form feed, got '"):
        texts.to_bytes(((line,),))


def test_the_hash_of_a_text_is_that_of_its_file():
    text = texts.text_of("made-up", (("a b", "c"), ("d",)))
    assert text.sha256 == hashlib.sha256(b"a b\nc\n\f\nd\n").hexdigest()
    assert (text.name, text.words) == ("made-up", 4)


def test_web_bible_makes_a_document_of_a_chapter_and_a_line_of_a_verse():
    assert texts.web_bible(module()) == (
        ("The hen laid an egg.", "It was a brown egg, And the hen's own."),
        ("As a gift of first-eggs she gave it even to us.",),
        ("So ended the hen.",),
        ("Sing, hens!",),
        ("Sing again, HENS.",),
        ("Clean is the coop.", "Clean is the nest."),
    )


def test_web_bible_goes_by_the_numbers_of_the_verses_not_by_their_order_in_the_file():
    shuffled = dict(sorted(VERSES.items(), key=lambda item: item[1]))
    assert texts.web_bible(module(shuffled)) == texts.web_bible(module())


def test_web_bible_does_not_run_the_module():
    assert texts.web_bible(module(before="raise SystemExit('run')\n")) == texts.web_bible(module())


@pytest.mark.parametrize(
    "source", [b"", b"bible = 3\n", b"bible = Bible('text', {}, {})\n", b"bible = Bible(1, 2, {}, {})\n"]
)
def test_web_bible_refuses_a_module_with_another_layout(source):
    expected = "^the module does not end with a call that holds a text, its verses' starts and their ends$"
    with pytest.raises(ValueError, match=expected):
        texts.web_bible(source)


def test_web_bible_refuses_a_verse_without_an_end():
    with pytest.raises(ValueError, match=r"^some verses have a start and no end, or an end and no start$"):
        texts.web_bible(b"bible = Bible(0, 'text', {1001001: 0}, {})\n")


TOPICS = {
    "b": """Baking bread
************

The baker kneads the dough for a while
and lets it rest. Then well-
known things happen in the oven:

   dough ::= flour "+" water ["+" salt]

1. The crust takes on a colour of its own.

* It is shared with the other topic.

Too short to be kept.

lower case is where a fragment of a list begins.

Mostly (1, 2, 3) = [4, 5, 6] numbers (7) and {8: 9} signs.
""",
    "a": "\n* It is shared with the other topic.\n",
    "c": "A heading\n=========\n",
}


def test_prose_keeps_paragraphs_that_read_as_sentences_each_on_one_line():
    assert texts.prose(TOPICS) == (
        ("It is shared with the other topic.",),
        (
            "The baker kneads the dough for a while and lets it rest. Then well-known things happen in the oven:",
            "The crust takes on a colour of its own.",
        ),
    )


def test_the_python_manual_has_topics_of_prose_and_no_line_twice():
    manual = texts.python_manual()
    every = [line for document in manual for line in document]
    assert len(manual) > 40
    assert sum(len(line.split()) for line in every) > 20_000
    assert len(set(every)) == len(every)
    assert not any("::=" in line or ">>>" in line or "\n" in line for line in every)
