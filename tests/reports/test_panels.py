"""Small figures beside each other."""

import pytest

from attnbench.reports.palette import Look
from attnbench.reports.panels import Panel, panels_drawn

LOOK = Look("#0072b2", "o", ())


@pytest.mark.parametrize(("count", "labelled"), [(1, [0]), (3, [0, 1, 2]), (4, [1, 2, 3]), (8, [5, 6, 7])])
def test_the_last_panel_of_each_column_says_the_numbers_below_it(count, labelled):
    panels = [Panel(f"v{number}", LOOK, ((20.0, 0.1), (40.0, 0.2)), ((20.0, 0.1),)) for number in range(count)]
    figure = panels_drawn(panels, "pairs", "loss", floor=1e-4, level=("retrieves", 0.001))
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == [panel.title for panel in panels]
    said = [place for place, axes in enumerate(shown) if axes.xaxis.get_tick_params()["labelbottom"]]
    assert said == labelled
