"""Beam search on a toy model whose every text can be looked at, and on a translator."""

import itertools

import pytest
import torch

from attnbench.harness import seeds
from attnbench.harness.models.beam import Going, Hypothesis, search

WORDS, END, BEGIN = 4, 0, 3


def toy(sources, longest):
    """Log-probabilities that hang on the source and on the last two tokens; the state is the source and the token before."""
    table = torch.randn(sources, WORDS, WORDS, longest + 1, WORDS, generator=seeds.generator("toy")).log_softmax(-1)

    def step(tokens, state, place):
        source, before = state
        return table[source, before, tokens, place], (source, tokens)

    def kept(state, rows, sources):
        source, before = state
        return source[rows], before[rows]

    start = (torch.arange(sources), torch.full((sources,), BEGIN))
    return table, Going(step, kept), start


def exhaustive(table, source, longest, penalty):
    """The best text of all there are."""
    best = None
    for length in range(longest + 1):
        for text in itertools.product(range(1, WORDS), repeat=length):
            total, before, last = 0.0, BEGIN, BEGIN
            for place, token in enumerate((*text, END)):
                total += float(table[source, before, last, place, token])
                before, last = last, token
            found = Hypothesis(text, total)
            if best is None or found.score(penalty) > best.score(penalty):
                best = found
    return best


def asked(going, start, count, longest, **how):
    return search(going, start, count, begin=BEGIN, end=END, longest=longest, **how)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_a_beam_that_holds_every_text_finds_the_best_of_all(penalty):
    longest = 3
    table, going, start = toy(5, longest)
    # 3 + 9 + 27 + 1 texts
    found = asked(going, start, 5, longest, beam=100, penalty=penalty)
    for source, hypotheses in enumerate(found):
        assert len(hypotheses) == 40
        right = exhaustive(table, source, longest, penalty)
        assert hypotheses[0].tokens == right.tokens
        assert hypotheses[0].log_probability == pytest.approx(right.log_probability, abs=1e-5)


def greedy(table, source, longest):
    text, before, last = [], BEGIN, BEGIN
    for place in range(longest):
        token = int(table[source, before, last, place].argmax())
        if token == END:
            break
        text.append(token)
        before, last = last, token
    return tuple(text)


def test_beam_one_is_the_greedy_search():
    longest = 8
    table, going, start = toy(50, longest)
    found = asked(going, start, 50, longest)
    assert [one[0].tokens for one in found] == [greedy(table, source, longest) for source in range(50)]
    assert all(len(one) == 1 for one in found)


def test_sources_do_not_hang_on_what_else_is_searched_for():
    longest = 6
    _, going, (source, before) = toy(20, longest)
    together = asked(going, (source, before), 20, longest, beam=3)
    for one in range(20):
        alone = asked(going, (source[one : one + 1], before[:1]), 1, longest, beam=3)
        assert alone[0] == together[one]


def test_a_wider_beam_holds_texts_of_the_right_probability_the_best_first():
    longest = 5
    table, going, start = toy(10, longest)
    for source, hypotheses in enumerate(asked(going, start, 10, longest, beam=4, penalty=0.6)):
        assert [one.score(0.6) for one in hypotheses] == sorted((one.score(0.6) for one in hypotheses), reverse=True)
        for one in hypotheses:
            total, before, last = 0.0, BEGIN, BEGIN
            for place, token in enumerate((*one.tokens, END)):
                total += float(table[source, before, last, place, token])
                before, last = last, token
            assert one.log_probability == pytest.approx(total, abs=1e-5)
            assert len(one.tokens) <= longest


def test_a_source_whose_text_never_ends_is_ended_at_its_last_token():
    def step(tokens, state, place):
        never = torch.tensor([-50.0, 0.0, -1.0, -2.0]).expand(len(tokens), -1)
        return never.log_softmax(-1), state

    going = Going(step, lambda state, rows, sources: state[rows])
    found = asked(going, torch.zeros(2), 2, 3, beam=2)
    assert [one[0].tokens for one in found] == [(1, 1, 1)] * 2


def test_sources_that_are_done_leave_the_state():
    seen = []

    def step(tokens, state, place):
        seen.append(len(state))
        # source 0 ends at once, source 1 after three tokens
        ends = torch.where((state == 0) | (place >= 3), 5.0, -5.0)
        return torch.stack([ends, *(torch.zeros_like(ends),) * 3], dim=1).log_softmax(-1), state

    going = Going(step, lambda state, rows, sources: state[rows])
    found = asked(going, torch.tensor([0.0, 1.0]), 2, 6)
    assert [len(one[0].tokens) for one in found] == [0, 3]
    assert seen == [2, 1, 1, 1]


def test_a_score_divides_by_the_tokens_with_the_end_to_the_penalty():
    found = Hypothesis((1, 2, 3), -8.0)
    assert (found.score(0), found.score(1), found.score(0.5)) == (-8, -2, -4)
