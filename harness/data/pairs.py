"""Pairs of lines in two languages made ready for translation: in three parts, encoded with one vocabulary for both sides.

A training pair one of whose sides a held-out pair has too, but for case and spaces, is left out: it would be asked for
what it was told. `removed` counts these.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnbench.harness.data import cache as files
from attnbench.harness.data.corpus import learned, parts_of
from attnbench.harness.data.encoded import FOLDER, Tokens, encoded
from attnbench.harness.data.pair_texts import sides
from attnbench.harness.data.texts import Document, PartedText, Text
from attnbench.harness.data.tokenisers import END_OF_LINE, Bpe

# What is done, in words: another rule needs other words, for they go into the hash.
_RULE = "split by document; training pairs with a side of a held-out pair, but for case and spaces, left out"


@dataclass(frozen=True, eq=False)
class Lines:
    """One side of a part, encoded: lines one after the other in `stream`, each with the token that ends it."""

    stream: Tokens

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Where each line ends in the stream."""
        return np.flatnonzero(np.asarray(self.stream) == END_OF_LINE) + 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each line, its end counted."""
        return np.diff(self.ends, prepend=0)

    def __len__(self) -> int:
        return len(self.ends)

    def line(self, number: int) -> Tokens:
        """The tokens of a line, its end the last."""
        end = self.ends[number]
        return self.stream[end - self.lengths[number] : end]


@dataclass(frozen=True, eq=False)
class PairSplit:
    """One part: both sides encoded, and the lines themselves where they are kept (not of training)."""

    source: Lines
    target: Lines
    sources: tuple[str, ...] = ()
    references: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class ParallelCorpus:
    """A text in two languages in three parts. `data_hash` covers text, split, vocabulary and tokeniser."""

    name: str
    vocabulary: int
    train: PairSplit
    validation: PairSplit
    test: PairSplit
    data_hash: str
    tokeniser: bytes
    removed: int

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens without their end, on one line, with single spaces."""
        return " ".join(self._loaded.decode(list(tokens)).split())

    @cached_property
    def _loaded(self) -> Bpe:
        return Bpe(self.tokeniser)


def pairs(
    text: Text | PartedText, *, vocabulary: int, held_out: float | None = None, cache: Path | None = None
) -> ParallelCorpus:
    """The text in three parts, encoded with pieces that are learned from both sides of the training part together.

    `held_out` is the share of the words that validation and test have together, None for a text with parts of its own. The
    vocabulary and the tokens are kept in the cache. Raises BadParameter.
    """
    key = pairs_hash(text.sha256, vocabulary=vocabulary, held_out=held_out)
    whole, validation, test = parts_of(text, held_out)
    known = [frozenset(map(_alike, one)) for one in zip(*_pairs((*validation, *test)), strict=True)]

    def train() -> Iterator[Document]:
        for document in whole:
            yield tuple(line for line in document if not _is_known(line, known))

    folder = files.cache_folder(cache)
    model = learned(
        text.name, _Again(lambda: map(_both, train())), vocabulary, "bpe", folder / "tokenisers" / f"{key}.model"
    )
    loaded = Bpe(model)

    def side(documents: Iterable[Document], number: int, name: str) -> Lines:
        lines = (tuple(sides(line)[number] for line in document) for document in documents)
        return Lines(encoded(lines, loaded, folder / FOLDER / key / name).stream)

    def part(documents: Iterable[Document], name: str) -> PairSplit:
        sources, references = zip(*_pairs(documents), strict=True)
        return PairSplit(
            side(documents, 0, f"{name}-source"), side(documents, 1, f"{name}-target"), sources, references
        )

    training = PairSplit(side(train(), 0, "train-source"), side(train(), 1, "train-target"))
    return ParallelCorpus(
        text.name,
        vocabulary,
        training,
        part(validation, "validation"),
        part(test, "test"),
        data_hash=key,
        tokeniser=model,
        removed=sum(map(len, whole)) - len(training),
    )


def pairs_hash(sha256: str, *, vocabulary: int, held_out: float | None = None) -> str:
    """The `data_hash` of a parallel corpus, from the hash of its text alone."""
    parts = {
        "text": sha256,
        "rule": _RULE,
        "held_out": held_out,
        "vocabulary": vocabulary,
        **Bpe.settings(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class _Again:
    """Documents that can be gone through more than once."""

    made: Callable[[], Iterable[Document]]

    def __iter__(self) -> Iterator[Document]:
        return iter(self.made())


def _both(document: Document) -> Document:
    """Every side of every pair as a line."""
    return tuple(side for line in document for side in sides(line))


def _pairs(documents: Iterable[Document]) -> Iterator[tuple[str, str]]:
    return (sides(line) for document in documents for line in document)


def _alike(side: str) -> str:
    """What sides have in common that differ in case and spaces only."""
    return " ".join(side.casefold().split())


def _is_known(line: str, known: Sequence[frozenset[str]]) -> bool:
    return any(_alike(side) in those for side, those in zip(sides(line), known, strict=True))
