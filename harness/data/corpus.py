"""A text made ready for language models: split by document, tokenised with BPE, counted in words and bytes.

    word perplexity = exp(nll / words)      bits per byte = nll / (ln 2 * bytes)

with nll the total negative log-likelihood of a split in nats. A line ends with one end-of-line token, which counts as a
word and as the byte of its line break, so neither number depends on the tokeniser.
"""

import contextlib
import hashlib
import importlib.metadata
import io
import json
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.harness.data import cache as files
from attnbench.harness.data.texts import Documents, Text
from attnbench.harness.errors import BadParameter

Tokens = NDArray[np.int32]

UNKNOWN = 0  # never met: what has no piece of its own is spelled in bytes
END_OF_LINE = 1

# Trained on one thread, which makes it the same everywhere; no normalisation, so that decoding gives the text back. Lines
# above max_sentence_length would be left out without a word.
_TOKENISER = {
    "model_type": "bpe",
    "character_coverage": 1.0,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "unk_id": UNKNOWN,
    "eos_id": END_OF_LINE,
    "eos_piece": "<eos>",
    "bos_id": -1,
    "pad_id": -1,
    "max_sentence_length": 1 << 30,
    "num_threads": 1,
}
# What `split` does, in words: another rule needs other words, for they go into the hash.
_SPLIT = "a document goes to the part furthest behind its share; more than half a held-out part goes to train"


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


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text, split and encoded. `data_hash` covers the text, the split, the vocabulary and the tokeniser."""

    name: str
    vocabulary: int
    train: Split
    validation: Split
    test: Split
    data_hash: str
    tokeniser: bytes

    def decode(self, tokens: Sequence[int] | Tokens) -> str:
        """The text of `tokens`, with a line break for each end of line."""
        lines: list[list[int]] = [[]]
        for token in map(int, tokens):
            if token == END_OF_LINE:
                lines.append([])
            else:
                lines[-1].append(token)
        return "\n".join(self._processor.decode(line) for line in lines)

    @cached_property
    def _processor(self) -> Any:
        return _sentencepiece().SentencePieceProcessor(model_proto=self.tokeniser)


def corpus(text: Text, *, vocabulary: int, held_out: float = 0.1, cache: Path | None = None) -> Corpus:
    """The text, split and encoded with `vocabulary` BPE pieces that are learned from the training part only.

    `held_out` is the share of the words kept from training, half of it for validation, half for test. The tokeniser is
    kept in the cache, where that can be written. Raises BadParameter.
    """
    key = corpus_hash(text.sha256, vocabulary=vocabulary, held_out=held_out)
    parts = split(text.documents, held_out)
    if not all(parts):
        raise BadParameter(
            f"'{text.name}' has {len(text.documents)} documents, too few to keep a share of {held_out:g} of it for "
            "validation and test. Hold out more, or choose another data set."
        )
    tokeniser = _tokeniser(text.name, parts[0], vocabulary, files.cache_folder(cache) / "tokenisers" / f"{key}.model")
    processor = _sentencepiece().SentencePieceProcessor(model_proto=tokeniser)
    train, validation, test = (_encoded(part, processor) for part in parts)
    return Corpus(text.name, vocabulary, train, validation, test, key, tokeniser)


def corpus_hash(sha256: str, *, vocabulary: int, held_out: float = 0.1) -> str:
    """The `data_hash` of a corpus, from the hash of its text alone. Raises BadParameter."""
    if isinstance(vocabulary, bool) or not isinstance(vocabulary, int) or vocabulary < 1:
        raise BadParameter(f"a vocabulary needs to be a whole number of at least 1, got {vocabulary!r}.")
    if not 0 < held_out <= 0.5:
        raise BadParameter(f"the share held out needs to be above 0 and at most 0.5, got {held_out!r}.")
    parts = {
        "text": sha256,
        "split": _SPLIT,
        "held_out": float(held_out),
        "vocabulary": vocabulary,
        "tokeniser": _TOKENISER,
        "sentencepiece": importlib.metadata.version("sentencepiece"),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def split(documents: Documents, held_out: float) -> tuple[Documents, Documents, Documents]:
    """Training, validation and test documents, each spread over the whole text and in its order.

    Document after document goes to the part whose words are furthest behind its share of the words so far, whatever the
    document's own length; only one of more than half of a held-out part always goes to training.
    """
    shares = (1 - held_out, held_out / 2, held_out / 2)
    words = [_words(document) for document in documents]
    longest = held_out / 4 * sum(words)
    parts: tuple[list[tuple[str, ...]], ...] = ([], [], [])
    given = [0, 0, 0]
    for document, count in zip(documents, words, strict=True):
        open_parts = range(3) if count <= longest else range(1)
        so_far = sum(given)
        chosen = max(open_parts, key=lambda part: shares[part] * so_far - given[part])
        parts[chosen].append(document)
        given[chosen] += count
    train, validation, test = map(tuple, parts)
    return train, validation, test


def _words(document: tuple[str, ...]) -> int:
    """Whitespace tokens, and one a line."""
    return sum(len(line.split()) + 1 for line in document)


def _encoded(documents: Documents, processor: Any) -> Split:
    """The documents as tokens, with their counts."""
    encoded = [
        np.fromiter(
            (token for line in processor.encode(list(document), add_eos=True, num_threads=1) for token in line),
            np.int32,
        )
        for document in documents
    ]
    stream = np.concatenate(encoded)
    stream.setflags(write=False)
    return Split(
        stream,
        tuple(np.cumsum([len(one) for one in encoded]).tolist()),
        sum(map(_words, documents)),
        sum(len(line.encode()) + 1 for document in documents for line in document),
    )


def _tokeniser(name: str, documents: Documents, vocabulary: int, path: Path) -> bytes:
    """The trained tokeniser, from the cache where it is whole there. Its file starts with the hash of the rest."""
    with contextlib.suppress(OSError):
        sha256, _, model = path.read_bytes().partition(b"\n")
        if hashlib.sha256(model).hexdigest().encode() == sha256:
            return model
    model = _trained(name, documents, vocabulary)
    # it can be trained again, so a cache that cannot be written costs time only
    with contextlib.suppress(OSError):
        files.write(path, hashlib.sha256(model).hexdigest().encode() + b"\n" + model)
    return model


def _trained(name: str, documents: Documents, vocabulary: int) -> bytes:
    """A tokeniser learned from `documents`. Raises BadParameter where the vocabulary does not fit the text."""
    model = io.BytesIO()
    try:
        _sentencepiece().SentencePieceTrainer.train(
            sentence_iterator=(line for document in documents for line in document),
            model_writer=model,
            vocab_size=vocabulary,
            minloglevel=2,
            **_TOKENISER,
        )
    except RuntimeError as error:
        if bound := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            needed = f"at least {bound[1]} pieces (all bytes, and every character of it)"
        elif bound := re.search(r"too high \(\d+\)\. Please set it to a value <= (\d+)", str(error)):
            needed = f"at most {bound[1]} pieces (it has no more to learn)"
        else:
            raise
        raise BadParameter(f"a vocabulary for '{name}' needs {needed}, got {vocabulary}.") from error
    return model.getvalue()


def _sentencepiece() -> Any:
    """The module, imported when it is needed."""
    with warnings.catch_warnings():
        # its generated bindings warn on import under Python 3.12 and later
        warnings.simplefilter("ignore", DeprecationWarning)
        import sentencepiece
    return sentencepiece
