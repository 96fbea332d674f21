"""BLEU from the statistics of sentences: sacreBLEU's own score, its bootstrap, and two systems side by side."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.harness.bleu import COLUMNS, bleu_of, from_json, interval, paired, resampled, to_json
from attnbench.suites.tasks.translation.scores import bleu, bleu_statistics

WORDS = st.lists(st.sampled_from(["der", "Hund", "bellt", "laut", ",", "nicht-mehr", "Ä"]), min_size=1, max_size=9)
LINES = st.lists(st.tuples(WORDS.map(" ".join), WORDS.map(" ".join)), min_size=1, max_size=6)


@given(LINES)
@settings(max_examples=60, deadline=None)
def test_statistics_of_sentences_give_the_score_of_sacrebleu(pairs):
    hypotheses, references = zip(*pairs, strict=True)
    assert bleu_of(bleu_statistics(hypotheses, references)) == pytest.approx(bleu(hypotheses, references).value)


def test_a_score_is_what_its_formula_gives_by_hand():
    # c = r = 6; matches of 1 to 4 words: 5/6, 3/5, 2/4, 1/3; (5/6 * 3/5 * 2/4 * 1/3) ^ (1/4) = 0.5373
    found = bleu_statistics(["a b c d e x"], ["a b c d y x"])
    assert found.tolist() == [[6, 6, 5, 3, 2, 1, 6, 5, 4, 3]]
    assert bleu_of(found) == pytest.approx(53.73, abs=0.01)


def test_a_short_translation_is_punished_by_e_to_one_less_the_ratio_of_lengths():
    # all matches of 4 of 8 words: e^(1 - 8/4)
    assert bleu_of(bleu_statistics(["a b c d"], ["a b c d e f g h"])) == pytest.approx(100 * np.exp(-1))


def test_nothing_alike_is_zero():
    assert bleu_of(bleu_statistics(["a b c d e"], ["v w x y z"])) == 0


def rows(*hypotheses: str) -> np.ndarray:
    return bleu_statistics(hypotheses, ["der Hund bellt heute laut"] * len(hypotheses))


def test_the_interval_holds_the_score_and_is_a_point_where_all_sentences_are_alike():
    mixed = rows(*["der Hund bellt heute laut", "ein Hund bellt laut heute"] * 20)
    low, high = interval(mixed)
    assert low < bleu_of(mixed) < high
    alike = rows(*["der Hund bellt heute leise"] * 5)
    assert interval(alike) == pytest.approx((bleu_of(alike),) * 2)


def test_the_same_sentences_are_drawn_for_every_system_and_every_time():
    assert (resampled(7) == resampled(7)).all()
    assert resampled(7).shape == (1000, 7)
    assert set(np.unique(resampled(7))) == set(range(7))


def test_a_system_is_not_told_apart_from_itself_and_from_a_worse_one_it_is():
    good, bad = rows(*["der Hund bellt heute laut"] * 30), rows(*["der Hund bellt heute leise"] * 30)
    assert paired(good, good) == (0, 0, 0, 1)
    difference, low, high, p = paired(bad, good)
    assert 0 < low <= difference <= high
    assert p == 0
    assert paired(good, bad)[0] == -difference


def test_systems_on_different_sentences_are_refused():
    with pytest.raises(ValueError, match="the same sentences, got 2 and 3"):
        paired(rows("a", "b"), rows("a", "b", "c"))


def test_statistics_come_back_from_their_text_and_other_texts_are_refused():
    found = rows("der Hund", "laut")
    assert (from_json(to_json(found)) == found).all()
    with pytest.raises(ValueError, match=f"rows of {COLUMNS} numbers"):
        from_json("[[1, 2, 3]]")
