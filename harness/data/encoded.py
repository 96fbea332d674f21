"""A part of a corpus as tokens, and how it lies in a file: encoded once, then mapped into memory.

SHA-256 of the rest, in hexadecimal
{"ends": [...], "words": ..., "utf8_bytes": ...}        spaces, until what follows lies at a multiple of 64 bytes
the tokens, 32 bits each, lowest byte first
"""

import array
import contextlib
import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnbench.harness.data import cache as files
from attnbench.harness.data.texts import Document
from attnbench.harness.data.tokenisers import Tokeniser

Tokens = NDArray[np.int32]

# Another layout, or another way of counting, needs another name.
FOLDER = "encoded-1"
_ALIGNED = 64


@dataclass(frozen=True, eq=False)
class Split:
    """One part of a corpus. `stream` is its documents one after the other, read-only; a tensor needs a copy of it.

    `ends` says where in the stream each document ends. `words` are whitespace tokens and one a line; `utf8_bytes` count
    a line break a line.
    """

    stream: Tokens
    ends: tuple[int, ...]
    words: int
    utf8_bytes: int

    @property
    def tokens(self) -> int:
        """Length of the stream."""
        return len(self.stream)

    @property
    def documents(self) -> tuple[Tokens, ...]:
        """The stream cut into its documents: views, not copies."""
        return tuple(np.split(self.stream, self.ends[:-1]))

    def word_perplexity(self, nll: float) -> float:
        """The perplexity of a word, when the whole split has the negative log-likelihood `nll`, in nats."""
        nats_per_word = nll / self.words
        return math.exp(nats_per_word) if nats_per_word < 700 else math.inf

    def bits_per_byte(self, nll: float) -> float:
        """The bits that a byte of text takes, when the whole split has the negative log-likelihood `nll`, in nats."""
        return nll / math.log(2) / self.utf8_bytes


def encoded(documents: Iterable[Document], tokeniser: Tokeniser, path: Path) -> Split:
    """The documents as tokens, with their counts: from the file at `path` where it is whole, else encoded and kept there."""
    if (found := _read(path)) is not None:
        return found
    made = _encode(documents, tokeniser)
    # it can be encoded again, so a cache that cannot be written costs time only
    with contextlib.suppress(OSError):
        _write(path, made)
    return made


def words(document: Document) -> int:
    """Whitespace tokens, and one a line."""
    return sum(len(line.split()) + 1 for line in document)


def _encode(documents: Iterable[Document], tokeniser: Tokeniser) -> Split:
    """The documents as tokens. One document at a time is held as text."""
    tokens = array.array("i")
    ends, word_count, utf8_bytes = [], 0, 0
    for document in documents:
        for line in tokeniser.encode(document):
            tokens.extend(line)
        ends.append(len(tokens))
        word_count += words(document)
        utf8_bytes += sum(len(line.encode()) + 1 for line in document)
    stream = np.frombuffer(tokens, np.int32) if tokens else np.zeros(0, np.int32)
    stream.setflags(write=False)
    return Split(stream, tuple(ends), word_count, utf8_bytes)


def _write(path: Path, split: Split) -> None:
    """Keeps a split. Raises OSError."""
    counts = json.dumps({"ends": split.ends, "words": split.words, "utf8_bytes": split.utf8_bytes})
    line_of_hash = hashlib.sha256().digest_size * 2 + 1
    header = counts.ljust(len(counts) + -(line_of_hash + len(counts) + 1) % _ALIGNED).encode() + b"\n"
    tokens = split.stream.astype("<i4", copy=False).data.cast("B") if split.tokens else b""
    sha256 = hashlib.sha256(header)
    sha256.update(tokens)
    with files.writing(path) as file:
        file.write(sha256.hexdigest().encode() + b"\n" + header)
        file.write(tokens)


def _read(path: Path) -> Split | None:
    """The split that is kept at `path`, its tokens mapped into memory; None unless it is there and whole."""
    try:
        with path.open("rb") as file:
            sha256 = file.readline().strip()
            start = file.tell()
            if hashlib.file_digest(file, "sha256").hexdigest().encode() != sha256:
                return None
            file.seek(start)
            counts = json.loads(file.readline())
            start, end = file.tell(), file.seek(0, 2)
        # no file of no bytes can be mapped
        stream = np.memmap(path, "<i4", "r", offset=start) if end > start else np.zeros(0, np.int32)
    except OSError:
        return None
    stream.setflags(write=False)
    return Split(np.asarray(stream), tuple(counts["ends"]), counts["words"], counts["utf8_bytes"])
