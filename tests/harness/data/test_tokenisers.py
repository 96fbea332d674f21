import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.data.corpus import corpus, corpus_hash, split
from attnbench.harness.data.texts import PartedText, StoredDocuments, text_of, to_bytes
from attnbench.harness.data.tokenisers import KINDS, Words
from attnbench.harness.errors import BadParameter

# the: 3, hen: 2, cock: 2, sees: 1, a: 1; three lines, so three ends
DOCUMENTS = (("the hen sees the cock", ""), ("a cock the hen",))

words = st.sampled_from(["a", "b", "c", "<unk>", "<eos>", "ü"])
documents = st.lists(st.lists(st.lists(words).map(" ".join), min_size=1).map(tuple), min_size=1).map(tuple)


def learned(documents=DOCUMENTS, vocabulary=7):
    return Words(Words.learn("hens", documents, vocabulary))


def parted(folder, train=DOCUMENTS, validation=(("the duck sees",),), test=(("a hen", "a goose"),)):
    """A text with parts of its own."""
    for name, part in {"train": train, "validation": validation, "test": test}.items():
        (folder / f"{name}.txt").write_bytes(to_bytes(part))
    paths = (folder / f"{name}.txt" for name in ("train", "validation", "test"))
    return PartedText("hens", tuple(map(StoredDocuments, paths)), "of hens")


def test_words_are_numbered_by_how_often_they_stand_in_the_training_part():
    # of equals <eos> comes first, then the word seen first; nothing is unknown, so <unk> comes last
    assert learned().model.decode().split("\n") == ["<eos>", "the", "hen", "cock", "sees", "a", "<unk>"]


def test_a_smaller_vocabulary_keeps_the_most_frequent_words_and_counts_the_others_as_unknown():
    # with <eos> (3) and <unk> in five: the (3), hen (2), cock (2); sees and a are unknown, 2 together, before hen
    made = learned(vocabulary=5)
    assert made.model.decode().split("\n") == ["<eos>", "the", "<unk>", "hen", "cock"]
    assert [list(line) for line in made.encode(DOCUMENTS[0])] == [[1, 3, 2, 1, 4, 0], [0]]
    assert made.decode([1, 3, 2, 1, 4]) == "the hen <unk> the cock"


def test_the_unknown_word_of_the_text_is_that_of_the_vocabulary():
    # <unk>: 3, <eos>: 1, hen: 1
    made = learned((("<unk> hen <unk> <unk>",),), 3)
    assert made.model.decode().split("\n") == ["<unk>", "<eos>", "hen"]
    assert [list(line) for line in made.encode(("hen <unk> duck",))] == [[2, 0, 0, 1]]


def test_a_word_that_is_spelled_like_the_end_of_a_line_does_not_end_one():
    made = learned((("hen <eos> hen",),), 3)
    (line,) = made.encode(("<eos> hen",))
    assert list(line) == [made.model.decode().split("\n").index("<unk>"), 0, made.end_of_line]


@given(documents, st.integers(0, 4))
def test_every_vocabulary_numbers_words_by_frequency_and_keeps_the_order_of_the_next_larger_one(made, fewer):
    largest = len({word for document in made for line in document for word in line.split()} - {"<unk>", "<eos>"}) + 2
    vocabulary = max(2, largest - fewer)
    tokeniser = learned(made, vocabulary)
    lines = [line for document in made for line in tokeniser.encode(document)]
    assert all(line[-1] == tokeniser.end_of_line and line.count(tokeniser.end_of_line) == 1 for line in lines)
    counts = np.bincount([token for line in lines for token in line], minlength=vocabulary)
    assert len(counts) == vocabulary
    assert (np.diff(counts) <= 0).all()
    kept = [word for word in tokeniser.model.decode().split("\n") if word not in ("<unk>", "<eos>")]
    of_all = [word for word in learned(made, largest).model.decode().split("\n") if word not in ("<unk>", "<eos>")]
    assert kept == of_all[: len(kept)]


@pytest.mark.parametrize("vocabulary", [1, 8])
def test_a_vocabulary_that_the_text_has_not_enough_words_for_is_refused_with_the_largest(tmp_path, vocabulary):
    with pytest.raises(BadParameter) as refused:
        corpus(parted(tmp_path), vocabulary=vocabulary, tokeniser="words", cache=tmp_path / "cache")
    assert str(refused.value) == (
        "a vocabulary for 'hens' holds <unk>, <eos> and at most the 5 words of its training part, so 2 to 7; got "
        f"{vocabulary}."
    )


def test_a_corpus_of_words_counts_and_decodes(tmp_path):
    made = corpus(parted(tmp_path), vocabulary=7, tokeniser="words", cache=tmp_path / "cache")
    assert (made.vocabulary, made.kind, made.end_of_line) == (7, "words", 0)
    assert made.train.stream.tolist() == [1, 2, 4, 1, 3, 0, 0, 5, 3, 1, 2, 0]
    assert made.decode(made.train.stream) == "the hen sees the cock\n\na cock the hen\n"
    # what was never seen in training is unknown, and counts with the bytes it has in the text
    assert made.decode(made.validation.stream) == "the <unk> sees\n"
    assert (made.validation.words, made.validation.utf8_bytes) == (4, len("the duck sees\n"))
    assert (made.test.words, made.test.tokens, made.test.ends) == (6, 6, (6,))
    assert made.train.ends == (7, 12)


def test_the_words_learned_hang_on_the_training_part_only(tmp_path):
    (tmp_path / "other").mkdir()
    one = corpus(parted(tmp_path), vocabulary=7, tokeniser="words", cache=tmp_path / "cache")
    text = parted(tmp_path / "other", validation=(("goose goose goose",),))
    assert corpus(text, vocabulary=7, tokeniser="words", cache=tmp_path / "else").tokeniser == one.tokeniser


def test_a_text_without_parts_is_split_before_its_words_are_counted(tmp_path):
    text = text_of("numbers", tuple((f"all have {number}",) for number in range(100)))
    made = corpus(text, vocabulary=4, tokeniser="words", cache=tmp_path)
    train, validation, _ = split(text.documents, 0.1)
    # <eos>, all, have: each once a line; and every number once, so all are unknown
    assert sorted(np.bincount(made.train.stream)) == [len(train)] * 4
    assert made.validation.words == 4 * len(validation)


def test_parts_of_its_own_are_kept_under_bpe_too(tmp_path):
    made = corpus(parted(tmp_path), vocabulary=280, cache=tmp_path / "cache")
    assert (made.kind, made.end_of_line) == ("bpe", 1)
    assert made.decode(made.validation.stream) == "the duck sees\n"
    assert made.decode(made.test.stream) == "a hen\na goose\n"
    assert made.data_hash == corpus_hash("of hens", vocabulary=280)


def test_holding_out_of_a_text_with_parts_of_its_own_is_refused(tmp_path):
    with pytest.raises(BadParameter) as refused:
        corpus(parted(tmp_path), vocabulary=7, tokeniser="words", held_out=0.2, cache=tmp_path / "cache")
    assert str(refused.value) == (
        "'hens' was published with a validation and a test part, so none is held out; got 0.2. Leave held_out away."
    )


def test_a_tokeniser_that_there_is_not_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(BadParameter) as refused:
        corpus_hash("of hens", vocabulary=7, tokeniser="word")
    assert str(refused.value) == "no tokeniser 'word'. Known: bpe, words. Did you mean 'words'?"


def test_the_hash_hangs_on_the_tokeniser_and_a_tenth_is_held_out_unless_told_otherwise(monkeypatch):
    hashes = {kind: corpus_hash("of hens", vocabulary=7, tokeniser=kind) for kind in KINDS}
    assert len(set(hashes.values())) == len(KINDS)
    assert hashes["bpe"] == corpus_hash("of hens", vocabulary=7) == corpus_hash("of hens", vocabulary=7, held_out=0.1)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "another")
    assert corpus_hash("of hens", vocabulary=7, tokeniser="words") == hashes["words"]


def test_the_hash_of_a_corpus_of_pieces_is_what_it_was_before_there_were_words(monkeypatch):
    # rows that are stored already carry it
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.2.3")
    known = "0c694570a17438ddd3b70d91a626a900fcbfd1e1451a5edfa2bc255ab75a03ee"
    assert corpus_hash("a" * 64, vocabulary=512) == known
