import bz2
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.data.wikipedia import SHORTEST_ARTICLE, authors_of, wiki_mini, wikitext

ROWS = [
    "",
    " = Hen = \n",
    "",
    " A hen lays <unk> eggs . \n",
    "",
    " = = Eggs = = \n",
    "",
    " = a = 3 \n",
    "",
    " = Cock = \n",
    "",
    " It crows . \n",
]


def test_an_article_of_wikitext_begins_at_a_title_of_one_equals_sign_a_side():
    assert tuple(wikitext(ROWS)) == (
        ("", "= Hen =", "", "A hen lays <unk> eggs .", "", "= = Eggs = =", "", "= a = 3", ""),
        ("= Cock =", "", "It crows ."),
    )


@pytest.mark.parametrize(
    "rows",
    [
        ["= Hen =", "", "text", "= Cock =", "", "text"],
        ["= Hen =", "", "text", "", "= Cock =", "text"],
        ["= Hen =", "", "text", "", "= = Cock = =", "", "text"],
        ["= Hen =", "", "text", "", "= = Cock =", "", "text"],
        ["= Hen =", "", "text", "", "= =", "", "text"],
    ],
    ids=["no-empty-line-before", "none-after", "two-signs", "uneven", "no-words"],
)
def test_what_is_no_title_between_empty_lines_begins_no_article(rows):
    assert len(list(wikitext(rows))) == 1


@given(st.lists(st.sampled_from(["", "a", " = Hen = ", " = = Eggs = = ", "a  b\u2028 \n", "= Cock ="])))
def test_no_row_is_left_out_and_its_words_stay(rows):
    lines = [line for article in wikitext(rows) for line in article]
    assert lines == [" ".join(row.split()) for row in rows]


def page(title, markup, namespace="0", redirect=""):
    return (
        f"<page><title>{escape(title)}</title><ns>{namespace}</ns>{redirect}<revision>"
        f"<timestamp>2016-04-22T10:19:33Z</timestamp><text>{escape(markup)}</text></revision></page>"
    )


def dump(*pages):
    """Pages as MediaWiki writes them out."""
    space = 'xmlns="http://www.mediawiki.org/xml/export-0.10/"'
    return bz2.compress(f"<mediawiki {space}><siteinfo/>{''.join(pages)}</mediawiki>".encode())


ENOUGH = " ".join(["hen"] * SHORTEST_ARTICLE)


def cleaned(markup):
    """The lines of an article but for its title and the paragraph that makes it long enough."""
    ((title, empty, long, *lines),) = wiki_mini(dump(page("Hen", f"{ENOUGH}\n{markup}")))
    assert (title, empty, long) == ("= Hen =", "", ENOUGH)
    return lines


@pytest.mark.parametrize(
    ("markup", "line"),
    [
        ("A '''hen''' is a [[chicken|female ''chicken'']].", "A hen is a female chicken."),
        ("See [[egg]]s, [[:Category:Eggs]] and [http://eggs.example eggs].", "See eggs, Category:Eggs and eggs."),
        ("It lays<ref>Hen, p. 3</ref> eggs<ref name=a/>.", "It lays eggs."),
        ("An egg &ndash; 5&nbsp;cm", "An egg – 5 cm"),
        (
            "It weighs {{convert|3|kg|lb}}, or {{convert|2|to|3|kg}}{{citation needed}}.",
            "It weighs 3 kg, or 2 to 3 kg.",
        ),
        ("The hen ({{IPAc-en|h|e|n}}; {{lang|la|gallina}}) lays.", "The hen (gallina) lays."),
        ("The hen ({{IPAc-en|h|e|n}}) lays.", "The hen lays."),
        ("H<sub>2</sub>O<br/>and <!-- no --> corn", "H2O and corn"),
        (":An indented line stays.", "An indented line stays."),
        ("It lays[[File:Hen.jpg|thumb|A [[hen]]]] eggs.[[Category:Hens]][[de:Huhn]]", "It lays eggs."),
        ("It is fed.__NOTOC__<blockquote>Eat!</blockquote>", "It is fed. Eat!"),
    ],
    ids=[
        "style",
        "links",
        "references",
        "entities",
        "measures",
        "templates",
        "gaps",
        "tags",
        "indented",
        "pictures",
        "words",
    ],
)
def test_markup_leaves_the_words_that_a_reader_sees(markup, line):
    assert cleaned(markup) == [line]


@pytest.mark.parametrize(
    "markup",
    [
        "* an item",
        "# an item",
        "; a term",
        "{|\n| a table\n|}",
        "<math>a</math>",
        "| a cell on its own",
        "{{a|template}}",
        "* * *",
        "3.14",
    ],
)
def test_what_is_no_paragraph_is_left_out(markup):
    assert cleaned(markup) == []


def test_headings_stand_between_empty_lines_with_a_sign_for_each_level():
    markup = "== Eggs ==\nAn egg.\nAnother egg.\n===Of ''hens''===\nA third.\n"
    assert cleaned(markup) == [
        *("", "= = Eggs = =", "", "An egg.", "Another egg."),
        *("", "= = = Of hens = = =", "", "A third."),
    ]


def test_a_heading_with_nothing_under_it_is_left_out_and_one_with_only_headings_stays():
    markup = "== Eggs ==\n=== White ===\n* none\n=== Brown ===\nAn egg.\n== See also ==\n* [[Cock]]\n"
    assert cleaned(markup) == ["", "= = Eggs = =", "", "= = = Brown = = =", "", "An egg."]


def test_redirects_other_pages_and_short_articles_are_left_out():
    made = wiki_mini(
        dump(
            page("Hens", ENOUGH, redirect='<redirect title="Hen"/>'),
            page("Talk:Hen", ENOUGH, namespace="1"),
            # the title is three words with its signs
            page("Short", " ".join(["hen"] * (SHORTEST_ARTICLE - 4))),
            page("Long", " ".join(["hen"] * (SHORTEST_ARTICLE - 3))),
        )
    )
    assert [article[0] for article in made] == ["= Long ="]


def test_the_authors_of_what_was_kept_are_named():
    pages = dump(page("A hen", ENOUGH), page("Short", "hen"))
    assert authors_of(wiki_mini(pages), pages) == [
        {
            "title": "A hen",
            "revision": "2016-04-22T10:19:33Z",
            "history": "https://en.wikipedia.org/w/index.php?title=A_hen&action=history",
        }
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no archive", "the dump is no XML packed with bz2: "),
        (bz2.compress(b"<open>"), "the dump is no XML packed with bz2: "),
        (dump(), "the dump has no pages"),
        (
            bz2.compress(b"<mediawiki><page><title>Hen</title><ns>0</ns></page></mediawiki>"),
            "a page lacks its title, its time or its text, got title 'Hen'",
        ),
    ],
    ids=["no-archive", "no-xml", "no-pages", "no-text"],
)
def test_a_dump_of_another_layout_is_refused(content, said):
    with pytest.raises(ValueError) as refused:
        wiki_mini(content)
    assert str(refused.value).startswith(said)
