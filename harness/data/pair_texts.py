"""Texts in two languages: a line is a pair, English, a tab, German. How each source becomes one.

four hundred and seven; twelve<tab>vierhundertsieben; zwölf

Lengths are in words between spaces.
"""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from attnbench.harness import seeds
from attnbench.harness.data.texts import Document, Documents, web_verses

BETWEEN_SIDES = "\t"
# of number words: numbers below the limit, so many a line, so many lines a document
NUMBERS_BELOW, NUMBERS_A_LINE, LINES_A_DOCUMENT, DOCUMENTS = 1000, (2, 4), 10, 800
LONGEST_SIDE = 60
# of rows of the Hub, which do not say where a document ends
ROWS_A_DOCUMENT = 1000


def joined(source: str, target: str) -> str:
    """A pair as a line. Raises ValueError where a side would not come back."""
    if BETWEEN_SIDES in source or BETWEEN_SIDES in target:
        raise ValueError(f"a side of a pair can hold no tab, got {source!r} and {target!r}")
    return f"{source}{BETWEEN_SIDES}{target}"


def sides(line: str) -> tuple[str, str]:
    """The pair that a line holds."""
    source, _, target = line.partition(BETWEEN_SIDES)
    return source, target


def number_words() -> Documents:
    """Numbers in English and German words, a few a line: units and tens swap, and a number becomes one word."""
    from num2words import num2words

    drawn = random.Random(seeds.seed("data", "number-words"))
    spelled = [(num2words(number), num2words(number, lang="de")) for number in range(NUMBERS_BELOW)]
    documents = []
    for _ in range(DOCUMENTS):
        lines = []
        for _ in range(LINES_A_DOCUMENT):
            numbers = [spelled[drawn.randrange(NUMBERS_BELOW)] for _ in range(drawn.randint(*NUMBERS_A_LINE))]
            lines.append(joined("; ".join(one for one, _ in numbers), "; ".join(other for _, other in numbers)))
        documents.append(tuple(lines))
    return tuple(documents)


def bible_en_de(module: bytes, luther: bytes) -> Documents:
    """Verses of the World English Bible beside Luther's of 1912, a document a chapter.

    `luther` has a line a verse, `1 Mose 1:1 Am Anfang ...`, the books in the same order. Left out: verses that only one has,
    the first of each psalm, which for Luther is its title, those with fewer than 3 or more than 60 words or with twice as many letters as
    the other side, those that are alike on both sides, and those whose English was there before. Raises ValueError where
    a text has another layout.
    """
    german = _luther(luther)
    seen: set[str] = set()
    chapters: dict[int, list[str]] = {}
    for verse, english in web_verses(module).items():
        other = german.get(verse, "")
        is_title = verse // 1_000_000 == _PSALMS and verse % 1000 == 1
        if is_title or english in seen or not _is_pair(english, other, shortest=3, ratio=2.0):
            continue
        seen.add(english)
        chapters.setdefault(verse // 1000, []).append(joined(english, other))
    return tuple(map(tuple, chapters.values()))


_PSALMS = 19


def _luther(luther: bytes) -> dict[int, str]:
    """Verses by their numbers bcccvvv."""
    verses: dict[int, str] = {}
    books: list[str] = []
    for line in luther.decode("utf-8").splitlines():
        if not line.strip():
            continue
        place, colon, rest = line.partition(":")
        book, _, chapter = place.rpartition(" ")
        verse, _, text = rest.partition(" ")
        if not colon or not chapter.isdecimal() or not verse.isdecimal():
            raise ValueError(f"a line is not `Book C:V text`: {line[:60]!r}")
        if book not in books:
            books.append(book)
        words = text.replace("{", " ").replace("}", " ").split()
        verses[(books.index(book) + 1) * 1_000_000 + int(chapter) * 1000 + int(verse)] = " ".join(words)
    return verses


def home_assistant_en_de(members: Mapping[str, bytes]) -> Documents:
    """Sentences of a user interface, a document a component: the texts that `en.json` and `de.json` have under one key.

    Left out: sides with fewer than 3 or more than 60 words or three times as many letters as the other, those that are alike, and those
    whose English was there before. Raises ValueError where a member is no JSON.
    """
    seen: set[str] = set()
    documents = []
    for name in sorted(name for name in members if name.endswith("/en.json")):
        german = members.get(f"{name.removesuffix('en.json')}de.json")
        if german is None:
            continue
        others = dict(_leaves(json.loads(german)))
        lines = []
        for key, english in _leaves(json.loads(members[name])):
            if english in seen or not _is_pair(english, others.get(key, ""), shortest=3, ratio=3.0):
                continue
            seen.add(english)
            lines.append(joined(english, others[key]))
        if lines:
            documents.append(tuple(lines))
    return tuple(documents)


def _leaves(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text of a JSON tree with the keys that lead to it, its runs of spaces made one."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, key))
        elif isinstance(value, str):
            yield (*above, key), " ".join(value.split())


def _is_pair(source: str, target: str, *, shortest: int, ratio: float) -> bool:
    """Whether two sides are of a fit length, not alike, and neither has `ratio` times the letters of the other."""
    if not all(shortest <= len(side.split()) <= LONGEST_SIDE for side in (source, target)):
        return False
    return source != target and 1 / ratio <= len(source) / len(target) <= ratio


def translations(rows: Iterable[Mapping[str, Any]]) -> Iterator[Document]:
    """The pairs of a part on the Hub, a row each, whose sides are under `en` and `de`; of `translation`, if there is one."""
    lines = iter(_translated(row.get("translation", row)) for row in rows)
    while document := tuple(islice(lines, ROWS_A_DOCUMENT)):
        yield document


def _translated(row: Mapping[str, str]) -> str:
    return joined(*(" ".join(row[language].split()) for language in ("en", "de")))
