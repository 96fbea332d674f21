import math
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.data.ngrams import bigram_nll, unigram_nll
from attnbench.harness.errors import BadParameter

TRAIN = np.array([0, 1, 0, 1, 0, 2], np.int32)


def tokens(*values):
    return np.array(values, np.int32)


def bigram(train, before, after, vocabulary):
    """P(after | before), from the cost of the pair and that of its first token."""
    return math.exp(
        unigram_nll(train, tokens(before), vocabulary) - bigram_nll(train, tokens(before, after), vocabulary)
    )


def test_the_unigram_adds_one_to_each_count():
    # counts 3, 2, 1 of 6, and 3 more for a vocabulary of 3
    for token, probability in enumerate([4 / 9, 3 / 9, 2 / 9]):
        assert unigram_nll(TRAIN, tokens(token), 3) == pytest.approx(-math.log(probability))
    assert unigram_nll(TRAIN, tokens(0, 2, 2), 3) == pytest.approx(-math.log(4 / 9) - 2 * math.log(2 / 9))


def test_the_unigram_of_no_text_is_uniform():
    assert unigram_nll(tokens(), tokens(3), 8) == pytest.approx(math.log(8))


def test_the_bigram_is_what_the_formula_gives_by_hand():
    # pairs 01 01 10 10 02: one count is 1, two are 2, so D = 1 / (1 + 2 * 2) = 0.2
    # each token was seen after one other: n = 3, three counts are 1, so E = 1 and Q = (0 + 1 * 3 / 3) / 3 = 1/3
    # c(0) = 3, m(0) = 2, so 0.2 * 2 / 3 = 2/15 is spread by Q; c(1) = 2, m(1) = 1, so 0.2 * 1 / 2 = 1/10
    expected = {
        (0, 0): 2 / 45,
        (0, 1): 1.8 / 3 + 2 / 45,
        (0, 2): 0.8 / 3 + 2 / 45,
        (1, 0): 1.8 / 2 + 1 / 30,
        (1, 1): 1 / 30,
        (1, 2): 1 / 30,
        (2, 0): 1 / 3,  # nothing was seen after 2
        (2, 1): 1 / 3,
        (2, 2): 1 / 3,
    }
    assert {pair: bigram(TRAIN, *pair, 3) for pair in expected} == pytest.approx(expected)


def test_the_first_token_costs_what_the_unigram_says():
    assert bigram_nll(TRAIN, tokens(1), 3) == unigram_nll(TRAIN, tokens(1), 3)
    assert bigram_nll(TRAIN, tokens(), 3) == unigram_nll(TRAIN, tokens(), 3) == 0


def test_the_cost_of_a_text_is_the_sum_of_the_costs_of_its_tokens():
    text = [0, 1, 1, 2, 0, 2]
    steps = [-math.log(bigram(TRAIN, before, after, 3)) for before, after in pairwise(text)]
    assert bigram_nll(TRAIN, tokens(*text), 3) == pytest.approx(unigram_nll(TRAIN, tokens(0), 3) + sum(steps))


@st.composite
def texts(draw):
    vocabulary = draw(st.integers(1, 6))
    train = draw(st.lists(st.integers(0, vocabulary - 1), max_size=60))
    return tokens(*train), vocabulary


@given(texts(), st.data())
def test_probabilities_sum_to_one_and_are_never_zero(text, data):
    train, vocabulary = text
    alone = [math.exp(-unigram_nll(train, tokens(after), vocabulary)) for after in range(vocabulary)]
    assert math.fsum(alone) == pytest.approx(1)
    before = data.draw(st.integers(0, vocabulary - 1))
    following = [bigram(train, before, after, vocabulary) for after in range(vocabulary)]
    assert math.fsum(following) == pytest.approx(1)
    assert min(following) > 0


def kneser_ney(train, before, after, vocabulary):
    """The formula in the module's docstring, by dictionaries."""
    pairs = Counter(pairwise(train))

    def discount(counts):
        ones, twos = counts.count(1), counts.count(2)
        return ones / (ones + 2 * twos) if ones else 0.5

    neighbours = Counter(w for _, w in pairs)
    if not pairs:
        return 1 / vocabulary
    e = discount(list(neighbours.values()))
    q = (max(neighbours[after] - e, 0) + e * len(neighbours) / vocabulary) / sum(neighbours.values())
    total = sum(count for (v, _), count in pairs.items() if v == before)
    if total == 0:
        return q
    d = discount(list(pairs.values()))
    followers = sum(v == before for v, _ in pairs)
    return max(pairs[before, after] - d, 0) / total + d * followers / total * q


@given(texts(), st.data())
def test_the_bigram_agrees_with_the_formula_written_out(text, data):
    train, vocabulary = text
    before, after = (data.draw(st.integers(0, vocabulary - 1)) for _ in range(2))
    expected = kneser_ney(train.tolist(), before, after, vocabulary)
    assert bigram(train, before, after, vocabulary) == pytest.approx(expected)


@given(st.integers(3, 20), st.integers(0, 2**32))
def test_the_bigram_beats_the_unigram_where_the_next_token_hangs_on_the_last(vocabulary, seed):
    choose = random.Random(seed)
    token, text = 0, []
    for _ in range(600):
        # a step forward, rarely a jump
        token = (token + 1) % vocabulary if choose.random() < 0.9 else choose.randrange(vocabulary)
        text.append(token)
    train, held_out = tokens(*text[:500]), tokens(*text[500:])
    assert bigram_nll(train, held_out, vocabulary) < 0.8 * unigram_nll(train, held_out, vocabulary)


@pytest.mark.parametrize("nll", [unigram_nll, bigram_nll])
@pytest.mark.parametrize(("train", "held_out"), [(TRAIN, tokens(2, 5)), (tokens(2, 5), TRAIN)])
def test_a_token_outside_the_vocabulary_is_refused(nll, train, held_out):
    with pytest.raises(BadParameter) as refused:
        nll(train, held_out, 5)
    assert str(refused.value) == (
        "an n-gram model over 5 tokens needs tokens from 0 to 4, got 2 to 5. Give the vocabulary that the text was "
        "encoded with."
    )


def test_pairs_of_a_large_vocabulary_do_not_overflow():
    vocabulary = 2**20  # its square is far above what the tokens' 32 bits hold
    first, second = vocabulary - 2, vocabulary - 1
    train = tokens(first, second, first, second, first)
    assert bigram(train, first, second, vocabulary) > 0.5
    assert bigram(train, second, second, vocabulary) < 0.5
