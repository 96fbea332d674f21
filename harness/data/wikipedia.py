"""Articles of Wikipedia as documents: from the rows of WikiText, and from the markup of a dump.

= Title =

The first paragraph, on one line.

= = A section = =

The empty lines belong to the text.

Layout: Merity et al., "Pointer Sentinel Mixture Models", arXiv:1609.07843.
"""

import bz2
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Any

from attnbench.harness.data.texts import Document, Documents

SHORTEST_ARTICLE = 300  # words


def wikitext(rows: Iterable[str]) -> Iterator[Document]:
    """The articles of a part of WikiText, none of its rows left out, empty ones included.

    A row is a line, its words joined by one space. An article begins at a title, with one equals sign a side, that stands
    between empty lines (or at the start); what comes before the first title belongs to the first article.
    """
    article: list[str] = []
    before, is_titled = "", False
    lines = (" ".join(row.split()) for row in rows)
    for line, after in pairwise(chain(lines, (None,))):
        assert line is not None
        if before == after == "" and _is_title(line):
            if is_titled:
                yield tuple(article)
                article = []
            is_titled = True
        article.append(line)
        before = line
    if article:
        yield tuple(article)


def _is_title(line: str) -> bool:
    """Whether the line is a heading of the first level: `= Title =`, and not `= = Section = =`."""
    words = line.split(" ")
    return len(words) > 2 and words[0] == words[-1] == "=" and words[1] != "=" != words[-2]


def wiki_mini(dump: bytes) -> Documents:
    """The articles of a dump (MediaWiki's XML, bz2) with at least 300 words, in its order, in the layout of WikiText.

    Left out: redirects and pages that are no articles; tables, pictures, references, formulas, items of lists, templates
    but for the few whose words are part of a sentence; and headings with nothing under them.
    """
    articles = (_article(title, markup) for title, _, markup in _pages(dump))
    return tuple(article for article in articles if sum(len(line.split()) for line in article) >= SHORTEST_ARTICLE)


def authors_of(documents: Documents, dump: bytes) -> list[dict[str, str]]:
    """Where each document is from, as its licence asks: title, time of the revision, and the page that names its authors."""
    kept = {document[0] for document in documents}
    return [
        {
            "title": title,
            "revision": revision,
            "history": f"https://en.wikipedia.org/w/index.php?title={title.replace(' ', '_')}&action=history",
        }
        for title, revision, _ in _pages(dump)
        if _heading(1, title) in kept
    ]


def _pages(dump: bytes) -> Iterator[tuple[str, str, str]]:
    """Title, time of the revision and markup of each article. Raises ValueError where the dump has another layout."""
    try:
        pages = ElementTree.fromstring(bz2.decompress(dump)).findall("{*}page")
    except (OSError, ElementTree.ParseError) as error:
        raise ValueError(f"the dump is no XML packed with bz2: {error}") from error
    if not pages:
        raise ValueError("the dump has no pages")
    for page in pages:
        if page.findtext("{*}ns") == "0" and page.find("{*}redirect") is None:
            title, revision, markup = (
                page.findtext(path) for path in ("{*}title", "{*}revision/{*}timestamp", "{*}revision/{*}text")
            )
            if title is None or revision is None or markup is None:
                raise ValueError(f"a page lacks its title, its time or its text, got title {title!r}")
            yield title, revision, markup


_ITEM = "\0"  # stands where an item of a list begins


def _article(title: str, markup: str) -> Document:
    """The lines of an article."""
    import mwparserfromhell

    lines = [_heading(1, title), ""]
    pending: list[tuple[int, str]] = []  # headings with nothing under them so far
    for part in _rendered(mwparserfromhell.parse(markup)).split("\n"):
        if heading := re.fullmatch(r"\s*((?:= )+)(.+?)(?: =)+\s*", part):
            level = len(heading[1].split())
            pending = [one for one in pending if one[0] < level] + [(level, part)]
        elif line := _line(part):
            for _, above in pending:
                lines += ["", above.strip(), ""] if lines[-1] else [above.strip(), ""]
            pending = []
            lines.append(line)
    return tuple(lines)


def _heading(level: int, title: str) -> str:
    signs = " ".join("=" * level)
    return f"{signs} {' '.join(title.split())} {signs}"


# Templates whose words are part of a sentence: which of their arguments are shown.
_SHOWN: dict[str, tuple[int, ...]] = {
    "convert": (1, 2),
    "lang": (2,),
    "nowrap": (1,),
    "smaller": (1,),
    "nihongo": (1,),
    "quote": (1,),
}
_RANGES = {"-", "–", "to", "and", "or", "by", "x", "×"}
_HIDDEN_TAGS = {"ref", "references", "table", "gallery", "math", "source", "timeline", "imagemap", "hr"}
_HIDDEN_LINKS = {"file", "image", "category", "media"}


def _rendered(code: Any) -> str:
    """What is shown of parsed markup, headings and paragraphs on lines of their own."""
    return "".join(map(_node, code.nodes))


def _node(node: Any) -> str:
    """What is shown of one node of parsed markup."""
    match type(node).__name__:
        case "Text":
            return str(node.value)
        case "HTMLEntity":
            return str(node.normalize())
        case "Heading":
            return f"\n{_heading(node.level, _rendered(node.title))}\n"
        case "ExternalLink":
            return _rendered(node.title) if node.title else ""
        case "Wikilink":
            return _link(node)
        case "Template":
            return _template(node)
        case "Tag":
            return _tag(node)
    return ""


def _link(node: Any) -> str:
    """The words of a link; nothing for pictures, categories, and the same article in another language."""
    title = str(node.title).strip()
    prefix, colon, rest = title.partition(":")
    if colon and prefix.strip().lower() in _HIDDEN_LINKS:
        return ""
    if node.text is not None:
        return _rendered(node.text)
    if colon and re.fullmatch(r"[a-z]{2,3}(?:-[a-z]+)*", prefix):
        return ""
    return rest if colon and not prefix else _rendered(node.title)


def _template(node: Any) -> str:
    """The words of a template that a sentence would lack without it."""
    name = str(node.name).strip().lower()

    def argument(number: int) -> str:
        return _rendered(node.get(number).value).strip() if node.has(number) else ""

    shown = _SHOWN.get(name, ())
    if name == "convert" and argument(2) in _RANGES:
        shown = (1, 2, 3, 4)
    return " ".join(filter(None, map(argument, shown)))


def _tag(node: Any) -> str:
    """What is shown of an HTML tag, or of the markup that stands for one."""
    name = str(node.tag).strip().lower()
    if name in ("li", "dt") and not node.contents:
        return _ITEM
    if name == "br":
        return " "
    if name in _HIDDEN_TAGS or not node.contents:
        return ""
    return _rendered(node.contents)


def _line(part: str) -> str:
    """A paragraph without the gaps that left-out parts leave; empty for what is no paragraph."""
    # the second: what the parser could make nothing of, most of it rows of tables that do not end
    if _ITEM in part or re.search(r"^\s*[|!]|\{\||\|\}|\{\{|\}\}|\[\[|\]\]", part):
        return ""
    line = re.sub(r"<ref\b[^>]*>.*?(?:</ref>|$)", "", part)
    line = re.sub(r"^.*</ref>|</?[a-z]+>", "", line)
    line = re.sub(r"'{2,}", "", line.replace("'''s ", "'s "))
    line = re.sub(r"__[A-Z]+__", " ", line)
    line = re.sub(r"\(\s*[;,:]+\s*", "(", line)
    line = re.sub(r"\s*[;,:]*\s*\)", ")", line)
    line = re.sub(r"\(\s*\)", "", line)
    line = re.sub(r"\s+([,.;:)])", r"\1", line)
    line = " ".join(re.sub(r"\(\s+", "(", line).split())
    return line if any(one.isalpha() for one in line) else ""
