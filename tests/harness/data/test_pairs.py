"""A text in two languages in three parts: split by document, encoded together, and nothing trained on that is asked for."""

import numpy as np
import pytest

from attnbench.harness.data.pair_texts import joined, sides
from attnbench.harness.data.pairs import pairs, pairs_hash
from attnbench.harness.data.texts import text_of
from attnbench.harness.errors import BadParameter

ENGLISH, GERMAN = ("hen", "egg", "coop", "seed", "duck"), ("Henne", "Ei", "Stall", "Korn", "Ente")


def line(*numbers):
    return joined(" ".join(ENGLISH[one] for one in numbers), " ".join(GERMAN[one] for one in numbers))


DOCUMENTS = tuple(
    tuple(line(a, b, (a + b + document) % 5) for a in range(5) for b in range(document % 4, 5))
    for document in range(20)
)


@pytest.fixture
def corpus(tmp_path):
    return pairs(text_of("hens", DOCUMENTS), vocabulary=300, held_out=0.2, cache=tmp_path)


def decoded(corpus, lines):
    return [corpus.decode(lines.line(number)[:-1].tolist()) for number in range(len(lines))]


def test_lines_come_back_from_their_tokens_each_with_its_end(corpus):
    assert decoded(corpus, corpus.test.source) == list(corpus.test.sources)
    assert decoded(corpus, corpus.test.target) == list(corpus.test.references)
    assert corpus.test.source.lengths.sum() == len(corpus.test.source.stream)
    assert all(corpus.test.source.line(number)[-1] == 1 for number in range(len(corpus.test)))


def test_no_side_of_a_training_pair_is_held_out_and_those_removed_are_counted(corpus):
    for side in ("source", "target"):
        held = {*decoded(corpus, getattr(corpus.test, side)), *decoded(corpus, getattr(corpus.validation, side))}
        assert not held & {*decoded(corpus, getattr(corpus.train, side))}
    assert corpus.removed > 0
    total = sum(map(len, DOCUMENTS))
    assert len(corpus.train) + corpus.removed + len(corpus.validation) + len(corpus.test) == total


def test_case_and_spaces_do_not_hide_a_duplicate(tmp_path):
    documents = tuple((joined(f"the hen {word}", f"die Henne {word}"),) for word in "abcdefghij" * 4)
    shouted = tuple((joined(f"THE  HEN {word}", f"das Huhn {word}"),) for word in "ABCDEFGHIJ" * 4)
    found = pairs(text_of("hens", documents + shouted), vocabulary=300, held_out=0.2, cache=tmp_path)
    held = {side.casefold() for part in (found.validation, found.test) for side in part.sources}
    trained = {" ".join(side.casefold().split()) for side in decoded(found, found.train.source)}
    assert not held & trained


def test_both_languages_share_one_vocabulary_that_only_the_training_part_is_seen_for(corpus):
    assert max(np.asarray(corpus.train.source.stream).max(), np.asarray(corpus.train.target.stream).max()) < 300
    assert corpus.vocabulary == 300


def test_what_is_cached_is_the_same_and_the_hash_hangs_on_text_share_and_vocabulary(corpus, tmp_path):
    again = pairs(text_of("hens", DOCUMENTS), vocabulary=300, held_out=0.2, cache=tmp_path)
    assert (np.asarray(again.train.source.stream) == np.asarray(corpus.train.source.stream)).all()
    assert again.tokeniser == corpus.tokeniser
    assert again.removed == corpus.removed
    sha256 = text_of("hens", DOCUMENTS).sha256
    assert corpus.data_hash == pairs_hash(sha256, vocabulary=300, held_out=0.2)
    others = [pairs_hash("x", vocabulary=300, held_out=0.2), pairs_hash(sha256, vocabulary=301, held_out=0.2)]
    assert len({corpus.data_hash, *others, pairs_hash(sha256, vocabulary=300, held_out=0.3)}) == 4


def test_the_split_is_by_document(tmp_path):
    documents = tuple(tuple(joined(f"d{d} l{n} x", f"D{d} L{n} y") for n in range(5)) for d in range(30))
    found = pairs(text_of("numbered", documents), vocabulary=290, held_out=0.2, cache=tmp_path)
    parts = [
        {side.split()[0] for side in decoded(found, part.source)}
        for part in (found.train, found.validation, found.test)
    ]
    assert found.removed == 0
    assert sum(map(len, parts)) == 30


def test_a_text_of_one_document_cannot_be_split(tmp_path):
    with pytest.raises(BadParameter, match="'hens' has 1 documents, too few"):
        pairs(text_of("hens", DOCUMENTS[:1]), vocabulary=300, held_out=0.2, cache=tmp_path)


def test_sides_of_a_line_are_its_parts():
    assert sides(line(0, 1)) == ("hen egg", "Henne Ei")
