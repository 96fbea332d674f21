"""The cells that passages share."""

import math

import pytest

from attnbench.reports.passage import loss_cell


@pytest.mark.parametrize(
    ("losses", "text", "spread"),
    [
        ([0.25], "0.250", ""),
        ([0.25, 0.25], "0.250", ""),
        ([0.5, 0.125, 0.25], "0.250", "0.125 – 0.500"),
        # halfway between the two in the middle
        ([0.25, 0.75], "0.500", "0.250 – 0.750"),
        # a run that diverged is above all others
        ([0.25, None, 0.125], "0.250", "0.125 – NaN"),
        ([0.25, math.nan], "NaN", ""),
        ([], "not measured", ""),
    ],
)
def test_the_losses_of_several_seeds_are_told_by_their_median_and_both_ends(losses, text, spread):
    cell = loss_cell(losses)
    assert (cell.text, cell.spread) == (text, spread)
