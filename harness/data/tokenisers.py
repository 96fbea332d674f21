"""The two ways in which lines become tokens: `bpe`, which spells every text, and `words`, as WikiText is published.

A tokeniser is learned from training documents only, is kept as bytes, and ends each line with one end-of-line token.

    words    <eos>, which ends a line, <unk>, which stands for every word without a number, and the words that are most
             frequent in the training part, of equals the one seen first; numbered by how often they stand there

That order is what an adaptive softmax needs. A text that holds `<unk>` for its own rare words means the same `<unk>`.
"""

import importlib.metadata
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from attnbench.harness.data.texts import Document
from attnbench.harness.errors import BadParameter, did_you_mean

UNKNOWN = 0  # of bpe, and never met: what has no piece of its own is spelled in bytes
END_OF_LINE = 1  # of bpe; with words it hangs on the text

UNKNOWN_WORD, END_OF_LINE_WORD = "<unk>", "<eos>"

# Trained on one thread, which makes it the same everywhere; no normalisation, so that decoding gives the text back. Lines
# above max_sentence_length would be left out without a word.
_BPE = {
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


class Tokeniser(Protocol):
    """Lines to tokens and back. `model` is all that it has learned."""

    @property
    def model(self) -> bytes: ...  # noqa: D102

    @property
    def end_of_line(self) -> int:
        """The token that ends every line."""

    def encode(self, document: Document) -> Iterable[Sequence[int]]:
        """The tokens of each line, its end included."""

    def decode(self, line: list[int]) -> str:
        """The text of the tokens of a line, its end left out."""


class Bpe:
    """Pieces that byte-pair encoding has found (sentencepiece); what has none is spelled in bytes. Decodes to the very text."""

    end_of_line = END_OF_LINE

    def __init__(self, model: bytes) -> None:
        self.model = model

    @staticmethod
    def settings() -> Mapping[str, object]:
        """What a model hangs on beside the text and the vocabulary."""
        return {"tokeniser": _BPE, "sentencepiece": importlib.metadata.version("sentencepiece")}

    @staticmethod
    def learn(name: str, documents: Iterable[Document], vocabulary: int) -> bytes:
        """A model of `vocabulary` pieces. Raises BadParameter where that does not fit the text called `name`."""
        model = io.BytesIO()
        try:
            _sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=(line for document in documents for line in document),
                model_writer=model,
                vocab_size=vocabulary,
                minloglevel=2,
                **_BPE,
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

    def encode(self, document: Document) -> Iterable[Sequence[int]]:
        """The pieces of each line, its end included."""
        lines: Iterable[Sequence[int]] = self._processor.encode(list(document), add_eos=True, num_threads=1)
        return lines

    def decode(self, line: list[int]) -> str:
        """The text of the pieces of a line."""
        return str(self._processor.decode(line))

    @cached_property
    def _processor(self) -> Any:
        return _sentencepiece().SentencePieceProcessor(model_proto=self.model)


class Words:
    """The most frequent words, between whitespace. Decodes to the text with single spaces and `<unk>` for the others.

    A model is its words in UTF-8, one a line, the most frequent first.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._words = model.decode().split("\n")
        numbers = {word: number for number, word in enumerate(self._words)}
        # a word that is spelled like the end of a line is a word without a number
        self.end_of_line = numbers.pop(END_OF_LINE_WORD)
        self._unknown = numbers[UNKNOWN_WORD]
        self._numbers = numbers

    @staticmethod
    def settings() -> Mapping[str, object]:
        """What a model hangs on beside the text and the vocabulary."""
        return {"tokeniser": {"model_type": "words", "order": "training frequency, then first occurrence"}}

    @staticmethod
    def learn(name: str, documents: Iterable[Document], vocabulary: int) -> bytes:
        """A model of `vocabulary` words. Raises BadParameter where the text called `name` has fewer."""
        counts: Counter[str] = Counter()
        lines = 0
        for document in documents:
            lines += len(document)
            for line in document:
                counts.update(line.split())
        unknown = counts.pop(UNKNOWN_WORD, 0) + counts.pop(END_OF_LINE_WORD, 0)
        largest = len(counts) + 2
        if not 2 <= vocabulary <= largest:
            raise BadParameter(
                f"a vocabulary for '{name}' holds {UNKNOWN_WORD}, {END_OF_LINE_WORD} and at most the {len(counts)} words of its "
                f"training part, so 2 to {largest}; got {vocabulary}."
            )
        # sorting keeps the order of first occurrence among equals
        kept = sorted(counts, key=lambda word: -counts[word])[: vocabulary - 2]
        unknown += counts.total() - sum(counts[word] for word in kept)
        of_all = {END_OF_LINE_WORD: lines, UNKNOWN_WORD: unknown, **{word: counts[word] for word in kept}}
        return "\n".join(sorted(of_all, key=lambda word: -of_all[word])).encode()

    def encode(self, document: Document) -> Iterable[Sequence[int]]:
        """The words of each line, its end included."""
        number, unknown, end = self._numbers.get, self._unknown, self.end_of_line
        return ([*(number(word, unknown) for word in line.split()), end] for line in document)

    def decode(self, line: list[int]) -> str:
        """The words of a line, a space between two."""
        return " ".join(self._words[number] for number in line)


class _Kind(Protocol):
    """A class of tokenisers."""

    def __call__(self, model: bytes) -> Tokeniser: ...

    def settings(self) -> Mapping[str, object]: ...

    def learn(self, name: str, documents: Iterable[Document], vocabulary: int) -> bytes: ...


KINDS: Mapping[str, _Kind] = {"bpe": Bpe, "words": Words}


def kind_of(name: str) -> _Kind:
    """The kind of tokeniser called `name`. Raises BadParameter."""
    if name not in KINDS:
        raise BadParameter(f"no tokeniser '{name}'. {did_you_mean(name, KINDS)}")
    return KINDS[name]


def _sentencepiece() -> Any:
    """The module, imported when it is needed."""
    with warnings.catch_warnings():
        # its generated bindings warn on import under Python 3.12 and later
        warnings.simplefilter("ignore", DeprecationWarning)
        import sentencepiece
    return sentencepiece
