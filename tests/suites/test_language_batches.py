"""The batches of a step hang on the step alone, and streams go on where they left off."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.errors import BadParameter
from attnbench.harness.seeds import generator
from attnbench.suites.tasks.language.batches import Streams, batches


def draws(step: int) -> torch.Generator:
    return generator("windows", step)


@given(st.integers(1, 5), st.integers(1, 7), st.integers(0, 40))
def test_streams_read_each_token_of_a_pass_once_and_then_begin_anew(batch: int, context: int, more: int) -> None:
    stream = torch.arange(batch * context + 1 + more)
    streams = batches("streams", stream, batch, context, draws)
    assert isinstance(streams, Streams)
    read = [streams.at(step) for step in range(1, streams.segments + 2)]
    assert [one.begins for one in read] == [True, *[False] * (streams.segments - 1), True]
    assert torch.equal(read[-1].rows, read[0].rows)
    for before, after in pairwise(read[:-1]):
        # the last target of a row is the first input of the same row in the next step
        assert torch.equal(before.rows[:, -1], after.rows[:, 0])
    inputs = torch.cat([one.rows[:, :-1] for one in read[:-1]]).flatten()
    assert len(inputs) == len(inputs.unique())
    assert len(stream) - len(inputs) <= batch * context + batch


@pytest.mark.parametrize("order", ["windows", "streams"])
def test_the_rows_of_a_step_are_the_same_whatever_was_read_before(order: str) -> None:
    stream = torch.arange(500)
    first, second = (batches(order, stream, 4, 9, draws) for _ in range(2))
    for step in (1, 2, 3):
        first.at(step)
    assert torch.equal(first.at(7).rows, second.at(7).rows)
    assert not torch.equal(first.at(7).rows, first.at(8).rows)


def test_windows_are_stretches_of_the_text_that_begin_anew() -> None:
    read = batches("windows", torch.arange(500), 4, 9, draws).at(3)
    assert read.rows.shape == (4, 10)
    assert read.rows.dtype == torch.long
    assert torch.equal(read.rows - read.rows[:, :1], torch.arange(10).expand(4, 10))
    assert read.begins


@pytest.mark.parametrize(("order", "needed"), [("windows", "1 x 9 + 1 = 10"), ("streams", "4 x 9 + 1 = 37")])
def test_a_text_that_is_too_short_is_refused(order: str, needed: str) -> None:
    batches(order, torch.arange(37 if order == "streams" else 10), 4, 9, draws)
    with pytest.raises(BadParameter, match=rf"{needed.replace('+', '[+]')} are needed"):
        batches(order, torch.arange(36 if order == "streams" else 9), 4, 9, draws)
