"""A text made ready for language models: in three parts, tokenised, counted in words and bytes.

    word perplexity = exp(nll / words)      bits per byte = nll / (ln 2 * bytes)

with nll the total negative log-likelihood of a split in nats. A line ends with one end-of-line token, which counts as a
word and as the byte of its line break, so neither number depends on the tokeniser.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from attnbench.harness.data import cache as files
from attnbench.harness.data.encoded import FOLDER, Split, Tokens, encoded, words
from attnbench.harness.data.texts import Document, Documents, PartedText, Text
from attnbench.harness.data.tokenisers import END_OF_LINE, UNKNOWN, Tokeniser, kind_of
from attnbench.harness.errors import BadParameter

__all__ = ["END_OF_LINE", "UNKNOWN", "Corpus", "Split", "Tokens", "corpus", "corpus_hash", "split"]

HELD_OUT = 0.1
# What `split` does, in words: another rule needs other words, for they go into the hash.
_SPLIT = "a document goes to the part furthest behind its share; more than half a held-out part goes to train"


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text in three parts, encoded. `data_hash` covers the text, the split, the vocabulary and the tokeniser.

    `vocabulary` is the number of tokens, `end_of_line` the one that ends every line, `tokeniser` what a tokeniser of this
    `kind` has learned. With `kind` "words" the tokens are numbered by their frequency in the training part, the most
    frequent first.
    """

    name: str
    vocabulary: int
    train: Split
    validation: Split
    test: Split
    data_hash: str
    tokeniser: bytes
    kind: str = "bpe"
    end_of_line: int = END_OF_LINE

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        """The text of `tokens`, with a line break for each end of line."""
        lines: list[list[int]] = [[]]
        for token in map(int, tokens):
            if token == self.end_of_line:
                lines.append([])
            else:
                lines[-1].append(token)
        return "\n".join(self._loaded.decode(line) for line in lines)

    @cached_property
    def _loaded(self) -> Tokeniser:
        return kind_of(self.kind)(self.tokeniser)


def corpus(
    text: Text | PartedText,
    *,
    vocabulary: int,
    tokeniser: str = "bpe",
    held_out: float | None = None,
    cache: Path | None = None,
) -> Corpus:
    """The text in three parts, encoded with a vocabulary of this size that is learned from the training part only.

    `tokeniser` is "bpe" (`vocabulary` pieces) or "words" (the most frequent words, <unk> and <eos> among them); see
    `tokenisers.py`. A text without parts of its own is split: `held_out` is the share of the words kept from training, a
    tenth unless told otherwise, half of it for validation, half for test. The vocabulary and the tokens are kept in the
    cache, where that can be written; tokens found there are mapped into memory, not read. Raises BadParameter.
    """
    key = corpus_hash(text.sha256, vocabulary=vocabulary, tokeniser=tokeniser, held_out=held_out)
    train, validation, test = parts_of(text, held_out)
    folder = files.cache_folder(cache)
    model = learned(text.name, train, vocabulary, tokeniser, folder / "tokenisers" / f"{key}.model")
    loaded = kind_of(tokeniser)(model)
    return Corpus(
        text.name,
        vocabulary,
        encoded(train, loaded, folder / FOLDER / key / "train"),
        encoded(validation, loaded, folder / FOLDER / key / "validation"),
        encoded(test, loaded, folder / FOLDER / key / "test"),
        data_hash=key,
        tokeniser=model,
        kind=tokeniser,
        end_of_line=loaded.end_of_line,
    )


def corpus_hash(sha256: str, *, vocabulary: int, tokeniser: str = "bpe", held_out: float | None = None) -> str:
    """The `data_hash` of a corpus, from the hash of its text alone. Raises BadParameter."""
    if isinstance(vocabulary, bool) or not isinstance(vocabulary, int) or vocabulary < 1:
        raise BadParameter(f"a vocabulary needs to be a whole number of at least 1, got {vocabulary!r}.")
    held_out = HELD_OUT if held_out is None else held_out
    if not 0 < held_out <= 0.5:
        raise BadParameter(f"the share held out needs to be above 0 and at most 0.5, got {held_out!r}.")
    parts = {
        "text": sha256,
        "split": _SPLIT,
        "held_out": float(held_out),
        "vocabulary": vocabulary,
        **kind_of(tokeniser).settings(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def parts_of(text: Text | PartedText, held_out: float | None) -> Sequence[Iterable[Document]]:
    """Training, validation and test documents: those of the text, or what it is split into. Raises BadParameter."""
    if isinstance(text, PartedText):
        if held_out is not None:
            raise BadParameter(
                f"'{text.name}' was published with a validation and a test part, so none is held out; got {held_out!r}. "
                "Leave held_out away."
            )
        return text.parts
    held_out = HELD_OUT if held_out is None else held_out
    parts = split(text.documents, held_out)
    if not all(parts):
        raise BadParameter(
            f"'{text.name}' has {len(text.documents)} documents, too few to keep a share of {held_out:g} of it for "
            "validation and test. Hold out more, or choose another data set."
        )
    return parts


def split(documents: Documents, held_out: float) -> tuple[Documents, Documents, Documents]:
    """Training, validation and test documents, each spread over the whole text and in its order.

    Document after document goes to the part whose words are furthest behind its share of the words so far, whatever the
    document's own length; only one of more than half of a held-out part always goes to training.
    """
    shares = (1 - held_out, held_out / 2, held_out / 2)
    counts = [words(document) for document in documents]
    longest = held_out / 4 * sum(counts)
    parts: tuple[list[tuple[str, ...]], ...] = ([], [], [])
    given = [0, 0, 0]
    for document, count in zip(documents, counts, strict=True):
        open_parts = range(3) if count <= longest else range(1)
        so_far = sum(given)
        chosen = max(open_parts, key=lambda part: shares[part] * so_far - given[part])
        parts[chosen].append(document)
        given[chosen] += count
    train, validation, test = map(tuple, parts)
    return train, validation, test


def learned(name: str, documents: Iterable[Document], vocabulary: int, tokeniser: str, path: Path) -> bytes:
    """The model of the tokeniser, from the cache where it is whole there. Its file starts with the hash of the rest."""
    with contextlib.suppress(OSError):
        sha256, _, model = path.read_bytes().partition(b"\n")
        if hashlib.sha256(model).hexdigest().encode() == sha256:
            return model
    model = kind_of(tokeniser).learn(name, documents, vocabulary)
    # it can be learned again, so a cache that cannot be written costs time only
    with contextlib.suppress(OSError):
        files.write(path, hashlib.sha256(model).hexdigest().encode() + b"\n" + model)
    return model
