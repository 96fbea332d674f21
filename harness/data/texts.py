"""A text is documents of lines. How each source becomes one, and how one lies in a file.

line
line
<form feed>
line            a form feed on a line of its own stands between two documents
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Document = tuple[str, ...]
Documents = tuple[Document, ...]

BETWEEN_DOCUMENTS = "\f\n"


@dataclass(frozen=True)
class Text:
    """A cleaned text. `sha256` is that of its file, so the same documents always have the same one."""

    name: str
    documents: Documents
    sha256: str

    @property
    def words(self) -> int:
        """Its whitespace tokens, ends of lines not counted."""
        return sum(len(line.split()) for document in self.documents for line in document)


@dataclass(frozen=True)
class StoredDocuments:
    """The documents in a file that `to_bytes` wrote, read anew each time they are gone through, one after the other."""

    path: Path

    def __iter__(self) -> Iterator[Document]:
        document: list[str] = []
        # by line breaks alone: a line may hold other characters that end one in Unicode
        with self.path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                if line == BETWEEN_DOCUMENTS:
                    yield tuple(document)
                    document = []
                else:
                    document.append(line[:-1])
        if document:
            yield tuple(document)


@dataclass(frozen=True)
class PartedText:
    """A text that was published with a training, a validation and a test part, which stay as they are.

    It can be too long to be held in memory, so its documents stay in their files. `sha256` tells it apart; where the text
    was identified before it was there, it is not that of a file.
    """

    name: str
    parts: tuple[StoredDocuments, StoredDocuments, StoredDocuments]
    sha256: str


def text_of(name: str, documents: Documents) -> Text:
    """The text called `name` that consists of `documents`."""
    return Text(name, documents, hashlib.sha256(to_bytes(documents)).hexdigest())


def to_bytes(documents: Documents) -> bytes:
    """The file of a text, UTF-8. Raises ValueError where a document is empty or a line would not come back as it was."""
    for document in documents:
        if not document:
            raise ValueError("a document needs at least one line, got none")
        for line in document:
            if "\n" in line or "\f" in line:
                raise ValueError(f"a line can hold no line break and no form feed, got {line!r}")
    return BETWEEN_DOCUMENTS.join("".join(f"{line}\n" for line in document) for document in documents).encode()


def from_bytes(content: bytes) -> Documents:
    """The documents that `to_bytes` wrote."""
    if not content:
        return ()
    return tuple(tuple(document.split("\n")[:-1]) for document in content.decode().split(BETWEEN_DOCUMENTS))


# The source hangs what stands above a psalm (its book, number and title) and above a stanza of Psalm 119 (a letter's
# name) on the end of the verse before, after a run of spaces.
_HEADING = re.compile(r"  +(?:BOOK [IVX]+ +)?Psalm \d+\b.*$|  +[A-Z]+(?: AND [A-Z]+)?$")


def web_bible(module: bytes) -> Documents:
    """Chapters of verses, as `web_verses` has them."""
    chapters: dict[int, list[str]] = {}
    for verse, line in web_verses(module).items():
        chapters.setdefault(verse // 1000, []).append(line)
    return tuple(tuple(verses) for verses in chapters.values())


def web_verses(module: bytes) -> dict[int, str]:
    """Verses by their numbers and in their order, from the Python module that holds them as one literal with their offsets.

        bible = Bible(Version..., "all of the text", {1001001: 0, ...}, {1001001: 55, ...}, ...)

    The module is parsed, never run. Verse bcccvvv is verse v of chapter c of book b. Headings go, as do the brackets
    around supplied words; the grave accent that stands for an apostrophe becomes one; a run of spaces becomes one space.
    Raises ValueError where the module has another layout.
    """
    match ast.parse(module).body[-1:]:
        case [
            ast.Assign(
                value=ast.Call(args=[_, ast.Constant(value=str(text)), ast.Dict() as starts, ast.Dict() as ends, *_])
            )
        ]:
            return _verses(text, ast.literal_eval(starts), ast.literal_eval(ends))
    raise ValueError("the module does not end with a call that holds a text, its verses' starts and their ends")


def _verses(text: str, starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, str]:
    """The cleaned verses, in the order of their numbers."""
    if starts.keys() != ends.keys():
        raise ValueError("some verses have a start and no end, or an end and no start")
    verses = {}
    for verse in sorted(starts):
        line = _HEADING.sub("", text[starts[verse] : ends[verse]])
        line = line.replace(" -[", "-[").replace("[", "").replace("]", "").replace("`", "'")
        verses[verse] = " ".join(line.split())
    return verses


def python_manual() -> Documents:
    """The prose of the language reference inside the running Python, a document a topic. Raises ImportError without one.

    A paragraph becomes a line if it reads as prose (see `_is_prose`) and no earlier topic had it: topics contain each
    other, and a paragraph in two of them could be trained on and held out. A topic without such a paragraph goes.
    """
    from pydoc_data.topics import topics

    return prose(topics)


def prose(topics: Mapping[str, str]) -> Documents:
    """The paragraphs that read as prose, by topic, in the order of the topics' names."""
    seen: set[str] = set()
    documents = []
    for name in sorted(topics):
        lines = []
        for paragraph in re.split(r"\n[ \t]*\n", topics[name]):
            line = _unwrapped(paragraph)
            if _is_prose(line) and line not in seen:
                seen.add(line)
                lines.append(line)
        if lines:
            documents.append(tuple(lines))
    return tuple(documents)


def _unwrapped(paragraph: str) -> str:
    """The paragraph on one line, without the mark of a list item, a word broken at its hyphen whole again."""
    whole = re.sub(r"(?<=\w)-\n\s*(?=[a-z])", "-", paragraph)
    return re.sub(r"^(?:\*|\d+\.) ", "", " ".join(whole.split()))


def _is_prose(line: str) -> bool:
    """Whether a line is six words or more, starts and ends as a sentence does, and is letters and spaces to 85 %.

    What is left out: headings, grammar, code, tables, signatures.
    """
    if len(line.split()) < 6 or not (line[0].isupper() or line[0] in '"“') or line[-1] not in ".:?!)":
        return False
    return sum(one.isalpha() or one == " " for one in line) >= 0.85 * len(line)
