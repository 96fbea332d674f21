"""Nested lists of digits under four operators, and the digit that each comes to.

    [MAX 2 9 [MIN 4 7] 0]  ->  9        one token each: [MAX  2  9  [MIN  4  7  ]  0  ]

MIN and MAX of the arguments, MED their median (of an even number of them the mean of the two in the middle, cut down to
a whole number), SM their sum modulo 10. A node is a leaf with probability 0.75, a uniform digit; else a uniform operator
with 2 to 10 arguments, uniform too, each of them a node. Nodes at depth 10 are leaves. A list is kept if its number of
tokens lies within the bounds, and every kept list is another one.

Source: arXiv:2011.04006, section 2.2.1 ("Long ListOps"), and its released generator; arXiv:1804.06028 for the task.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch

from attnbench.harness.errors import BadParameter

LEAF_SHARE = 0.75
FEWEST_ARGUMENTS, MOST_ARGUMENTS = 2, 10
# the outermost node stands at depth 1
DEEPEST = 10
CLASSES = 10

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
WORDS = (*map(str, range(10)), *OPERATORS, "]")
MIN, MAX, MED, SM = range(10, 14)
END = 14
# fills the places behind a list's end in a batch; no list has it
PADDING = 15
VOCABULARY = 16

# an operator, two digits, a bracket
SHORTEST = 4
# a list that is kept takes at most this many tries, on average
MOST_TRIES = 10_000
NUMBERS_AT_ONCE = 1 << 16

Tokens = tuple[int, ...]


class Sample(NamedTuple):
    """A list as token numbers, and what it comes to: the class, 0 to 9."""

    tokens: Tokens
    value: int


@dataclass(frozen=True)
class Bounds:
    """How many tokens a list has: at least `shortest`, at most `longest`."""

    shortest: int
    longest: int

    def check(self, samples: int) -> None:
        """Refuse bounds within which `samples` different lists cannot be found in reasonable time. Raises BadParameter."""
        if self.shortest < SHORTEST:
            raise BadParameter(f"the shortest list is {SHORTEST} tokens, as [MAX 1 2 ]; got {self.shortest}.")
        if self.longest < self.shortest:
            raise BadParameter(
                f"the longest list has at least as many tokens as the shortest, {self.shortest}; got {self.longest}."
            )
        kept, expected_repeats = chances(self)
        if kept * MOST_TRIES < 1:
            raise BadParameter(
                f"lists of {self.shortest} to {self.longest} tokens are too rare to be drawn: "
                f"fewer than one in {MOST_TRIES:,}. Move the bounds apart or down."
            )
        # up to here at least every second list that is drawn is a new one; the sums are rounded
        room = int(0.5 / expected_repeats + 1e-6)
        if samples > room:
            raise BadParameter(
                f"there is room for {room:,} different lists of {self.shortest} to {self.longest} tokens, "
                f"got {samples:,} samples. Allow longer lists."
            )


def samples(bounds: Bounds, count: int, generator: torch.Generator) -> list[Sample]:
    """`count` different lists within the bounds, in the order in which they were drawn.

    The same generator gives the same samples in every process. Raises BadParameter for bounds that do not hold so many.
    """
    bounds.check(count)
    numbers = uniform(generator)
    drawn: dict[Tokens, None] = {}
    while len(drawn) < count:
        tokens = drawn_list(numbers, bounds.longest)
        if tokens is not None and len(tokens) >= bounds.shortest:
            drawn[tokens] = None
    return [Sample(tokens, value_of(tokens)) for tokens in drawn]


def uniform(generator: torch.Generator) -> Iterator[float]:
    """Numbers from 0 up to below 1, for ever."""
    while True:
        yield from torch.rand(NUMBERS_AT_ONCE, generator=generator, dtype=torch.float64).tolist()


def drawn_list(numbers: Iterator[float], longest: int) -> Tokens | None:
    """One list, or None once it is known to have more than `longest` tokens. Its outermost node is no leaf."""
    tokens: list[int] = []
    # arguments that the open operators still wait for; a node among them stands at depth len(waiting) + 1
    waiting: list[int] = []
    while True:
        depth = len(waiting) + 1
        is_leaf = depth > 1 and (depth == DEEPEST or next(numbers) < LEAF_SHARE)
        if is_leaf:
            tokens.append(int(next(numbers) * 10))
        else:
            tokens.append(MIN + int(next(numbers) * len(OPERATORS)))
            choices = MOST_ARGUMENTS - FEWEST_ARGUMENTS + 1
            waiting.append(FEWEST_ARGUMENTS + int(next(numbers) * choices))
            if len(tokens) + sum(waiting) > longest:
                return None
            continue
        waiting[-1] -= 1
        while waiting and not waiting[-1]:
            tokens.append(END)
            waiting.pop()
            if waiting:
                waiting[-1] -= 1
        if len(tokens) > longest:
            return None
        if not waiting:
            return tuple(tokens)


def value_of(tokens: Sequence[int]) -> int:
    """The digit that a list comes to."""
    open_nodes: list[tuple[int, list[int]]] = []
    for token in tokens:
        if token in (MIN, MAX, MED, SM):
            open_nodes.append((token, []))
            continue
        value = applied(*open_nodes.pop()) if token == END else token
        if not open_nodes:
            return value
        open_nodes[-1][1].append(value)
    raise ValueError(f"a list ends with the bracket of its first operator: {written(tokens)}")


def applied(operator: int, arguments: Sequence[int]) -> int:
    """An operator's value."""
    if operator == MIN:
        return min(arguments)
    if operator == MAX:
        return max(arguments)
    if operator == SM:
        return sum(arguments) % 10
    ordered = sorted(arguments)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def depth_of(tokens: Sequence[int]) -> int:
    """How many operators are open where most are: 1 for a list without a list inside."""
    depth = deepest = 0
    for token in tokens:
        depth += (token in (MIN, MAX, MED, SM)) - (token == END)
        deepest = max(deepest, depth)
    return deepest


def written(tokens: Sequence[int]) -> str:
    """The list as text: [MAX 2 9 [MIN 4 7 ] 0 ]."""
    return " ".join(WORDS[token] for token in tokens)


@cache
def chances(bounds: Bounds) -> tuple[float, float]:
    """The share of drawn lists that is kept, and the chance that two kept ones are the same list.

    Computed and not drawn: from the sums of p(list) and of p(list)^2 over all lists of n tokens, for every n. A node at
    depth d is a leaf, or an operator whose 2 to 10 arguments are nodes at depth d + 1.
    """
    once = _sums(bounds.longest, 1)[bounds.shortest :].sum()
    twice = _sums(bounds.longest, 2)[bounds.shortest :].sum()
    return float(once), float(twice / once**2) if once else math.inf


def _sums(longest: int, power: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Sum of p^power over the lists of n tokens, n = 0 ... longest; the outermost node is no leaf."""
    leaf = 10 * (1 / 10) ** power
    choices = MOST_ARGUMENTS - FEWEST_ARGUMENTS + 1
    operator = len(OPERATORS) * (1 / len(OPERATORS) / choices) ** power
    nodes = np.zeros(longest + 1)
    nodes[1] = leaf
    size = 2 * longest + 1
    for depth in range(DEEPEST - 1, 0, -1):
        transformed = np.fft.rfft(nodes, size)
        arguments = np.zeros(longest + 1)
        product = nodes  # of one argument; FEWEST_ARGUMENTS is the next
        for _ in range(FEWEST_ARGUMENTS, MOST_ARGUMENTS + 1):
            product = np.fft.irfft(np.fft.rfft(product, size) * transformed, size)[: longest + 1].clip(min=0)
            arguments += product
        inner = np.zeros(longest + 1)
        # the operator and its bracket are two tokens
        inner[2:] = operator * arguments[:-2]
        if depth > 1:
            nodes = (1 - LEAF_SHARE) ** power * inner
            nodes[1] += LEAF_SHARE**power * leaf
    return inner
