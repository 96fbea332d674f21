"""Words in and out: one matrix, probabilities that sum to one, and rare words looked at only where they are due."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import softmax

from attnbench.harness.models import Adaptive, Tied, count_parameters
from attnbench.harness.seeds import generator

WIDTH = 6


def adaptive(words: int = 20, cutoffs: tuple[int, ...] = (5, 9)) -> Adaptive:
    made = Adaptive(words, WIDTH, cutoffs, generator=generator("init")).double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(name), dtype=torch.float64))
    return made


def tied() -> Tied:
    return Tied(20, WIDTH, deviation=1.0, generator=generator("init")).double()


def hidden(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, WIDTH, generator=generator("hidden"), dtype=torch.float64)


@given(st.sets(st.integers(1, 19), min_size=1, max_size=4), st.integers(0, 19))
def test_probabilities_of_all_words_sum_to_one_and_are_those_that_the_loss_uses(bounds: set[int], word: int) -> None:
    words = adaptive(cutoffs=tuple(sorted(bounds)))
    x = hidden(3)
    found = words.log_probabilities(x)
    assert found.shape == (3, 20)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(words.nll(x, torch.full((3,), word)), -found[:, word])


def test_a_rare_word_costs_its_cluster_and_its_place_in_it() -> None:
    words = adaptive(words=4, cutoffs=(1, 2))
    x = hidden(1)
    # entries of the head: word 0, the cluster of word 1, the cluster of words 2 and 3
    head = torch.cat([x @ words.weight[:1].T + words.bias[:1], x @ words.cluster_weight.T + words.cluster_bias], dim=1)
    last = x @ words.weight[2:].T + words.bias[2:]
    by_hand = softmax(head, dim=1)[0, 2] * softmax(last, dim=1)[0, 1]
    assert words.nll(x, torch.tensor([3])).item() == pytest.approx(-math.log(by_hand.item()), rel=1e-12)
    # alone in its cluster, word 1 costs the cluster only
    assert words.nll(x, torch.tensor([1])).item() == pytest.approx(-math.log(softmax(head, dim=1)[0, 1].item()))


def test_the_loss_keeps_the_shape_of_its_targets_and_reaches_every_parameter() -> None:
    words = adaptive()
    targets = torch.tensor([[0, 6, 19], [4, 5, 9]])
    nll = words.nll(hidden(2, 3), targets)
    assert nll.shape == targets.shape
    nll.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in words.parameters())


def test_targets_without_a_rare_word_are_scored_too() -> None:
    words = adaptive()
    torch.testing.assert_close(
        words.nll(hidden(2), torch.tensor([0, 4])), -words.log_probabilities(hidden(2))[[0, 1], [0, 4]]
    )


def test_a_plain_softmax_gives_the_same_loss_as_its_probabilities() -> None:
    words, targets = tied(), torch.tensor([[0, 6, 19], [4, 5, 9]])
    found = words.log_probabilities(hidden(2, 3))
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(2, 3, dtype=torch.float64))
    torch.testing.assert_close(words.nll(hidden(2, 3), targets), -found.gather(2, targets.unsqueeze(2)).squeeze(2))


def test_a_word_is_embedded_as_its_row() -> None:
    for words in (tied(), adaptive()):
        assert torch.equal(words.embed(torch.tensor([[3, 19]]))[0, 1], words.weight[19])


def test_parameters_are_those_counted_by_hand() -> None:
    assert count_parameters(tied()) == 20 * 6
    # a bias a word, and for each of two clusters a row and a bias
    assert count_parameters(adaptive()) == 20 * 6 + 20 + 2 * (6 + 1)
