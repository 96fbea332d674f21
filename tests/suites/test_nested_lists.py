"""The lists are well formed, come to what they should, keep their bounds, and hang on the generator alone."""

import math
import statistics
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.errors import BadParameter
from attnbench.harness.seeds import generator
from attnbench.suites.tasks import nested_lists
from attnbench.suites.tasks.nested_lists import (
    END,
    MAX,
    MED,
    MIN,
    OPERATORS,
    SM,
    WORDS,
    Bounds,
    Tokens,
    applied,
    chances,
    depth_of,
    drawn_list,
    samples,
    uniform,
    value_of,
    written,
)

FUNCTIONS = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda arguments: int(statistics.median(arguments)),
    "[SM": lambda arguments: sum(arguments) % 10,
}


def read(text: str) -> Tokens:
    """The tokens of a list written as in the paper."""
    return tuple(map(WORDS.index, text.replace("]", " ] ").split()))


def parsed(words: Iterator[str], word: str) -> tuple[int, int]:
    """Value and depth of the node that starts with `word`, by the grammar, recursively."""
    if word.isdecimal():
        return int(word), 0
    arguments, depth = [], 0
    for inner in words:
        if inner == "]":
            break
        value, below = parsed(words, inner)
        arguments.append(value)
        depth = max(depth, below)
    assert 2 <= len(arguments) <= 10
    return FUNCTIONS[word](arguments), depth + 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[MAX 2 9 [MIN 4 7] 0]", 9),
        ("[MIN 2 9 [MAX 4 7] 1]", 1),
        # 8 + 7 + 9 = 24
        ("[SM 8 7 9]", 4),
        # 1, 4, 9: the one in the middle
        ("[MED 9 1 4]", 4),
        # 1, 4, 7, 9: the mean of 4 and 7 is 5.5, cut down
        ("[MED 9 1 4 7]", 5),
        # 2, 4: 3 exactly
        ("[MED 2 4]", 3),
        # inside out: 6 + 8 = 14 -> 4; the median of 4, 3, 5 is 4; the smallest of 4, 7 is 4
        ("[MIN [MED [SM 6 8] 3 5] 7]", 4),
    ],
)
def test_a_list_comes_to_what_hand_arithmetic_says(text: str, value: int) -> None:
    assert value_of(read(text)) == value


@pytest.mark.parametrize("tokens", [(), (MAX, 1, 2), (MAX, 1, MIN, 2, 3, END)])
def test_a_list_that_does_not_end_has_no_value(tokens: Tokens) -> None:
    with pytest.raises(ValueError, match="ends with the bracket of its first operator"):
        value_of(tokens)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=10))
def test_operators_agree_with_their_names(arguments: list[int]) -> None:
    assert applied(MIN, arguments) == min(arguments)
    assert applied(MAX, arguments) == max(arguments)
    assert applied(MED, arguments) == int(statistics.median(arguments))
    assert applied(SM, arguments) == int(str(sum(arguments))[-1])


@given(st.integers(0, 2**32), st.integers(4, 30), st.integers(0, 30))
def test_every_list_is_well_formed_within_its_bounds_and_has_the_value_of_its_tree(
    number: int, shortest: int, more: int
) -> None:
    bounds = Bounds(shortest, shortest + 4 + more)
    for tokens, value in samples(bounds, 2, generator("lists", number)):
        words = iter(written(tokens).split())
        expected, depth = parsed(words, next(words))
        assert next(words, None) is None
        assert value == expected
        assert bounds.shortest <= len(tokens) <= bounds.longest
        assert 1 <= depth == depth_of(tokens) <= 9


def test_a_list_is_written_as_words() -> None:
    assert written(read("[MAX 2 9 [MIN 4 7] 0]")) == "[MAX 2 9 [MIN 4 7 ] 0 ]"
    assert depth_of(read("[MAX 2 9 [MIN 4 7] 0]")) == 2


def test_numbers_are_those_of_the_generator_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_lists, "NUMBERS_AT_ONCE", 2)
    numbers = uniform(generator("numbers"))
    found = [next(numbers) for _ in range(5)]
    assert len(set(found)) == 5
    assert all(0 <= number < 1 for number in found)


def test_the_numbers_decide_the_list() -> None:
    # first operator 0.3 * 4 -> MAX, 0.1 * 9 -> 2 arguments; a leaf (0.74), 0.95 -> 9; an operator (0.75),
    # 0.99 -> SM, 0 -> 2 arguments; leaves 0 and 5
    numbers = iter([0.3, 0.1, 0.74, 0.95, 0.75, 0.99, 0.0, 0.0, 0.0, 0.5, 0.5])
    assert drawn_list(numbers, 10) == read("[MAX 9 [SM 0 5]]")
    assert next(numbers, None) is None


def test_nodes_at_depth_ten_are_leaves() -> None:
    class Operators:
        """Numbers that would never make a leaf, and two arguments everywhere."""

        def __init__(self) -> None:
            self.turn = 0

        def __next__(self) -> float:
            self.turn += 1
            return 0.76 if self.turn % 3 == 0 else 0.0

    # the first node asks for two numbers (operator, arguments), each further one for three
    tokens = drawn_list(Operators(), 10**6)  # type: ignore[arg-type]
    assert tokens is not None
    assert depth_of(tokens) == 9


@pytest.mark.parametrize("longest", [8, 9])
def test_a_list_with_one_token_too_many_is_given_up(longest: int) -> None:
    # seven leaves under one operator are nine tokens
    numbers = iter([0.0, 5 / 9 + 0.01, *[0.0, 0.5] * 7])
    assert (drawn_list(numbers, longest) is None) == (longest < 9)


def test_the_same_generator_gives_the_same_samples_in_the_same_order_and_another_gives_others() -> None:
    bounds = Bounds(8, 24)
    first, again, other = (samples(bounds, 50, generator("lists", name)) for name in ("a", "a", "b"))
    assert first == again
    assert first != other
    # fewer of them are the first of them: nothing goes through a set
    assert samples(bounds, 20, generator("lists", "a")) == first[:20]


def test_all_samples_are_different() -> None:
    # 4 operators x 100 pairs of digits: 400 lists of four tokens, of which every second is asked for
    drawn = samples(Bounds(4, 4), 200, generator("lists"))
    assert len({tokens for tokens, _ in drawn}) == 200


def test_the_shares_of_leaves_operators_and_digits_are_those_of_the_paper() -> None:
    numbers = uniform(generator("shares"))
    tokens = [token for _ in range(150) for token in (drawn_list(numbers, 10**6) or ())]
    digits = [token for token in tokens if token < 10]
    operators = [token for token in tokens if 10 <= token < END]
    for digit in range(10):
        assert digits.count(digit) / len(digits) == pytest.approx(0.1, abs=0.01)
    for operator in (MIN, MAX, MED, SM):
        assert operators.count(operator) / len(operators) == pytest.approx(1 / len(OPERATORS), abs=0.02)
    # 2 to 10 arguments are 6 on average, and every node but the outermost is one of them
    nodes = len(digits) + len(operators) - 150
    assert nodes / len(operators) == pytest.approx(6, abs=0.2)


def test_the_chances_of_four_tokens_are_those_of_hand_arithmetic() -> None:
    # two arguments (1 of 9 numbers of arguments), both leaves (0.75 each); 400 lists as likely as each other
    kept, repeats = chances(Bounds(4, 4))
    assert kept == pytest.approx(0.75**2 / 9)
    assert repeats == pytest.approx(1 / 400)


def test_the_chances_of_seven_tokens_are_those_of_hand_arithmetic() -> None:
    # five leaves under one operator: 0.75^5 / 9, in 4 x 10^5 lists; or an operator of two arguments, one of them
    # an operator of two: two places x 0.75 x 0.25 x 0.75^2 / 81, in 2 x 16 x 1000 lists
    flat, nested = 0.75**5 / 9, 2 * 0.75 * 0.25 * 0.75**2 / 81
    kept, repeats = chances(Bounds(7, 7))
    assert kept == pytest.approx(flat + nested)
    assert repeats == pytest.approx((flat**2 / 4e5 + nested**2 / 3.2e4) / (flat + nested) ** 2)


def test_the_chance_of_being_kept_is_what_drawing_finds() -> None:
    bounds, numbers = Bounds(10, 30), uniform(generator("kept"))
    found = sum(len(drawn_list(numbers, bounds.longest) or ()) >= bounds.shortest for _ in range(5000)) / 5000
    kept, _ = chances(bounds)
    # four standard errors of a share over 5,000
    assert found == pytest.approx(kept, abs=4 * math.sqrt(kept * (1 - kept) / 5000))


def test_of_all_trees_of_the_paper_about_one_in_twelve_is_kept() -> None:
    # the paper's trees can be a single leaf, which is never kept: one in four has an operator
    kept, _ = chances(Bounds(501, 1999))
    assert kept / 4 == pytest.approx(1 / 12, rel=0.05)


@pytest.mark.parametrize(
    ("bounds", "count", "says"),
    [
        (Bounds(3, 20), 1, "the shortest list is 4 tokens, as [MAX 1 2 ]; got 3."),
        (Bounds(9, 8), 1, "the longest list has at least as many tokens as the shortest, 9; got 8."),
        (
            Bounds(4, 4),
            201,
            "there is room for 200 different lists of 4 to 4 tokens, got 201 samples. Allow longer lists.",
        ),
        (
            Bounds(6000, 6010),
            1,
            "lists of 6000 to 6010 tokens are too rare to be drawn: fewer than one in 10,000. "
            "Move the bounds apart or down.",
        ),
    ],
)
def test_bounds_that_cannot_be_kept_are_refused_instead_of_drawing_for_ever(
    bounds: Bounds, count: int, says: str
) -> None:
    with pytest.raises(BadParameter) as refused:
        bounds.check(count)
    assert str(refused.value) == says
    with pytest.raises(BadParameter):
        samples(bounds, count, generator("lists"))
