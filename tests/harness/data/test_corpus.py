import hashlib
import math
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.data import tokenisers
from attnbench.harness.data.corpus import END_OF_LINE, UNKNOWN, Split, corpus, corpus_hash, split
from attnbench.harness.data.texts import python_manual, text_of
from attnbench.harness.errors import BadParameter


def made_up(documents=60, seed=0):
    """Sentences by a small grammar, in documents of three to eight lines."""
    choose = random.Random(seed)
    nouns = ["hen", "cock", "duck", "goose", "farmer", "miller", "cat", "mouse", "field", "barn", "mill", "river"]
    verbs = ["sees", "follows", "feeds", "leaves", "finds", "calls", "greets", "minds"]

    def phrase():
        return f"the {choose.choice(nouns)}"

    def line():
        return f"{phrase()} {choose.choice(verbs)} {phrase()}, and {phrase()} {choose.choice(verbs)} {phrase()}.".capitalize()

    return text_of("made-up", tuple(tuple(line() for _ in range(choose.randint(3, 8))) for _ in range(documents)))


TEXT = made_up()


def written(documents):
    return "".join(f"{line}\n" for document in documents for line in document)


@pytest.fixture
def made(tmp_path):
    return corpus(TEXT, vocabulary=320, cache=tmp_path)


def test_decoding_gives_the_text_back(made):
    parts = split(TEXT.documents, 0.1)
    for part, documents in zip((made.train, made.validation, made.test), parts, strict=True):
        assert made.decode(part.stream) == written(documents)
        assert [made.decode(one) for one in part.documents] == [written([document]) for document in documents]


def test_text_unseen_in_training_is_spelled_in_bytes_and_comes_back(tmp_path):
    documents = list(TEXT.documents)
    # eleven words, as every line has, so that the split stays the same
    odd = "Ünseen  characters: 漢字, \t and a line that ends in two spaces  "
    held_out = {line for document in split(TEXT.documents, 0.1)[1] for line in document}
    documents = tuple(tuple(odd if line in held_out else line for line in document) for document in documents)
    made = corpus(text_of("odd", documents), vocabulary=320, held_out=0.1, cache=tmp_path)
    everything = "".join(made.decode(part.stream) for part in (made.train, made.validation, made.test))
    assert sorted(everything.splitlines()) == sorted(written(documents).splitlines())
    assert all(UNKNOWN not in part.stream for part in (made.train, made.validation, made.test))
    assert made.validation.utf8_bytes == len(f"{odd}\n".encode()) * (made.validation.stream == END_OF_LINE).sum()


def test_each_line_ends_with_one_end_of_line(made):
    lines = sum(len(document) for document in split(TEXT.documents, 0.1)[1])
    assert (made.validation.stream == END_OF_LINE).sum() == lines
    assert all(document[-1] == END_OF_LINE for document in made.validation.documents)


def test_words_bytes_and_tokens_are_counted_with_the_ends_of_lines(made):
    for part, documents in zip((made.train, made.validation, made.test), split(TEXT.documents, 0.1), strict=True):
        lines = sum(map(len, documents))
        assert part.words == len(written(documents).split()) + lines
        assert part.utf8_bytes == len(written(documents).encode())
        assert part.tokens == len(part.stream) == part.ends[-1] == sum(map(len, part.documents))


def test_tokens_are_whole_numbers_of_32_bits_below_the_vocabulary_that_nobody_can_change(made):
    for part in (made.train, made.validation, made.test):
        assert part.stream.dtype == np.int32
        assert part.stream.min() >= 0
        assert part.stream.max() < made.vocabulary
        with pytest.raises(ValueError, match="read-only"):
            part.stream[0] = 0


def test_perplexity_and_bits_are_what_the_formulas_give_by_hand():
    part = Split(np.zeros(5, np.int32), (5,), words=4, utf8_bytes=12)
    assert part.word_perplexity(4 * math.log(50)) == pytest.approx(50)
    assert part.bits_per_byte(36 * math.log(2)) == pytest.approx(3)
    assert part.word_perplexity(4 * 10_000) == math.inf


documents = st.lists(st.integers(1, 40).map(lambda words: (" ".join(["hen"] * words),)), max_size=200).map(tuple)


@given(documents, st.floats(0.02, 0.5))
def test_every_document_lies_in_one_part_in_the_order_of_the_text(made, held_out):
    marked = tuple((f"{number} {document[0]}",) for number, document in enumerate(made))
    parts = split(marked, held_out)
    numbers = [[int(document[0].split()[0]) for document in part] for part in parts]
    assert sorted(number for part in numbers for number in part) == list(range(len(marked)))
    assert all(part == sorted(part) for part in numbers)


@given(st.integers(0, 2**32), st.integers(400, 600), st.floats(0.1, 0.5))
def test_the_parts_have_their_shares_of_the_words(seed, number, held_out):
    lengths = random.Random(seed).choices(range(1, 41), k=number)
    parts = split(tuple((" ".join(["hen"] * words),) for words in lengths), held_out)
    words = [sum(len(line.split()) + 1 for document in part for line in document) for part in parts]
    for part, share in zip(words, (1 - held_out, held_out / 2, held_out / 2), strict=True):
        # no part is ever more than one document ahead, and all together are neither ahead nor behind
        assert part == pytest.approx(share * sum(words), abs=2 * 41)


def test_the_parts_are_spread_over_the_whole_text():
    marked = tuple((str(number),) for number in range(400))
    for part in split(marked, 0.1):
        numbers = [int(document[0]) for document in part]
        assert np.diff(numbers).max() <= 25  # every twentieth, give or take
        assert numbers[0] < 25
        assert numbers[-1] >= 375


@given(st.integers(0, 2**32), st.integers(100, 200))
def test_which_part_a_document_goes_to_does_not_hang_on_its_own_length(seed, number):
    lengths = random.Random(seed).choices(range(1, 41), k=number)
    before = tuple((" ".join(["hen"] * words),) for words in lengths)
    for parts in zip(split((*before, ("a cock",)), 0.5), split((*before, ("a cock " * 30,)), 0.5), strict=True):
        assert len({len([document for document in part if "cock" in document[0]]) for part in parts}) == 1


def test_a_document_longer_than_half_a_held_out_part_goes_to_training():
    long = (" ".join(["hen"] * 500),)
    documents = tuple(long if number % 10 == 5 else ("a hen",) for number in range(200))
    train, validation, test = split(documents, 0.1)
    assert long in train
    assert long not in validation + test
    assert validation
    assert test


def test_no_line_of_the_python_manual_is_both_trained_on_and_held_out():
    train, validation, test = (set(written(part).splitlines()) for part in split(python_manual(), 0.1))
    assert not train & (validation | test)
    assert not validation & test
    assert min(len(validation), len(test)) > 20


def test_the_tokeniser_learns_from_the_training_part_only(made, tmp_path):
    _, validation, test = split(TEXT.documents, 0.1)
    held_out = set(validation + test)
    changed = tuple(
        tuple(" ".join(["zzz"] * len(line.split())) for line in document) if document in held_out else document
        for document in TEXT.documents
    )
    other = corpus(text_of("changed", changed), vocabulary=320, cache=tmp_path)
    assert other.tokeniser == made.tokeniser
    assert other.data_hash != made.data_hash
    assert other.validation.tokens > made.validation.tokens


def test_a_line_of_any_length_is_learned_from(tmp_path):
    # sentencepiece leaves out lines above 4,192 bytes unless told otherwise
    long = " ".join(["quince"] * 2000)
    documents = tuple((long,) if number == 0 else document for number, document in enumerate(TEXT.documents))
    made = corpus(text_of("long", documents), vocabulary=320, cache=tmp_path)
    assert made.train.documents[0].size <= 2 * 2000 + 1


def test_the_same_text_gives_the_same_corpus_with_an_empty_cache_and_with_a_full_one(made, tmp_path, monkeypatch):
    elsewhere = corpus(TEXT, vocabulary=320, cache=tmp_path / "other")
    monkeypatch.setattr(tokenisers.Bpe, "learn", None)
    monkeypatch.setattr(tokenisers.Bpe, "encode", None)
    cached = corpus(TEXT, vocabulary=320, cache=tmp_path)
    for other in (elsewhere, cached):
        assert (other.tokeniser, other.data_hash) == (made.tokeniser, made.data_hash)
        assert (other.train.stream == made.train.stream).all()
        assert (other.validation.stream == made.validation.stream).all()


def test_a_damaged_tokeniser_in_the_cache_is_trained_again(made, tmp_path):
    (path,) = (tmp_path / "tokenisers").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert corpus(TEXT, vocabulary=320, cache=tmp_path).tokeniser == made.tokeniser
    path.write_bytes(b"")
    assert corpus(TEXT, vocabulary=320, cache=tmp_path).tokeniser == made.tokeniser


def test_a_cache_that_cannot_be_written_costs_time_only(made, tmp_path):
    (tmp_path / "file").write_text("")
    assert corpus(TEXT, vocabulary=320, cache=tmp_path / "file").tokeniser == made.tokeniser


def test_nothing_is_printed(capfd, tmp_path):
    corpus(TEXT, vocabulary=320, cache=tmp_path)
    with pytest.raises(BadParameter):
        corpus(TEXT, vocabulary=5000, cache=tmp_path)
    assert capfd.readouterr() == ("", "")


def test_the_hash_is_known_from_that_of_the_text_and_hangs_on_every_setting(made, monkeypatch):
    known = corpus_hash(TEXT.sha256, vocabulary=320)
    assert made.data_hash == known
    others = {
        corpus_hash(made_up(seed=1).sha256, vocabulary=320),
        corpus_hash(TEXT.sha256, vocabulary=321),
        corpus_hash(TEXT.sha256, vocabulary=320, held_out=0.2),
    }
    monkeypatch.setattr("importlib.metadata.version", lambda name: "another")
    others.add(corpus_hash(TEXT.sha256, vocabulary=320))
    assert len(others - {known}) == 4


@pytest.mark.parametrize("vocabulary", [0, -5, True, 1e3, "many"])
def test_a_vocabulary_that_is_no_whole_number_is_refused(vocabulary, tmp_path):
    with pytest.raises(BadParameter) as refused:
        corpus(TEXT, vocabulary=vocabulary, cache=tmp_path)
    assert str(refused.value) == f"a vocabulary needs to be a whole number of at least 1, got {vocabulary!r}."


@pytest.mark.parametrize("held_out", [0, -0.1, 0.6, math.nan])
def test_a_share_held_out_that_is_none_or_too_much_is_refused(held_out, tmp_path):
    with pytest.raises(BadParameter) as refused:
        corpus(TEXT, vocabulary=320, held_out=held_out, cache=tmp_path)
    assert str(refused.value) == f"the share held out needs to be above 0 and at most 0.5, got {held_out!r}."


def test_a_vocabulary_too_small_for_all_bytes_and_characters_is_refused_with_the_smallest(tmp_path):
    with pytest.raises(BadParameter) as refused:
        corpus(TEXT, vocabulary=100, cache=tmp_path)
    # 256 bytes, unknown, end of line, the mark of a space, and the characters but for the space
    smallest = 259 + len(set(written(split(TEXT.documents, 0.1)[0])) - {" ", "\n"})
    assert str(refused.value) == (
        f"a vocabulary for 'made-up' needs at least {smallest} pieces (all bytes, and every character of it), got 100."
    )
    assert corpus(TEXT, vocabulary=smallest, cache=tmp_path).vocabulary == smallest


def test_a_vocabulary_too_large_for_the_text_is_refused_with_the_largest(tmp_path):
    with pytest.raises(BadParameter) as refused:
        corpus(TEXT, vocabulary=5000, cache=tmp_path)
    words = str(refused.value).split()
    largest = int(words[words.index("most") + 1])
    assert str(refused.value) == (
        f"a vocabulary for 'made-up' needs at most {largest} pieces (it has no more to learn), got 5000."
    )
    assert corpus(TEXT, vocabulary=largest, cache=tmp_path).vocabulary == largest


def test_a_text_of_too_few_documents_is_refused(tmp_path):
    with pytest.raises(BadParameter) as refused:
        corpus(text_of("short", TEXT.documents[:2]), vocabulary=320, cache=tmp_path)
    assert str(refused.value) == (
        "'short' has 2 documents, too few to keep a share of 0.1 of it for validation and test. Hold out more, or choose "
        "another data set."
    )


def test_another_fault_of_the_tokeniser_is_not_taken_for_the_users(tmp_path, monkeypatch):
    def failing(**settings):
        raise RuntimeError("out of luck")

    monkeypatch.setattr("sentencepiece.SentencePieceTrainer.train", failing)
    with pytest.raises(RuntimeError, match=r"^out of luck$"):
        corpus(TEXT, vocabulary=320, cache=tmp_path)


def test_the_tokeniser_is_the_same_in_another_process(made, tmp_path):
    program = (
        "import hashlib, pickle, sys\n"
        "from pathlib import Path\n"
        "from attnbench.harness.data.corpus import corpus\n"
        "from attnbench.harness.data.texts import text_of\n"
        "text = text_of('made-up', pickle.loads(Path(sys.argv[1]).read_bytes()))\n"
        "made = corpus(text, vocabulary=320, cache=Path(sys.argv[2]))\n"
        "print(made.data_hash, hashlib.sha256(made.tokeniser).hexdigest())\n"
    )
    (tmp_path / "documents").write_bytes(pickle.dumps(TEXT.documents))
    command = (sys.executable, "-c", program, str(tmp_path / "documents"), str(tmp_path / "other"))
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said == [made.data_hash, hashlib.sha256(made.tokeniser).hexdigest()]
