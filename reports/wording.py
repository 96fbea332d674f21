"""How findings are told: numbers in the unit of their quantity, points in short, and how much of a claim was seen."""

import math
from collections.abc import Iterable, Sequence
from functools import cache

from attnbench.harness.metrics import METRICS
from attnbench.harness.spec import Point, Setting
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.published.claims import STEPS_TO_SOLVE, At
from attnbench.reports.tables import metric_words


@cache
def unit_of(quantity: str) -> str:
    """The unit of a metric; 1 for what is none."""
    return METRICS[quantity].unit if quantity in METRICS else "1"


def quantity_written(value: float, quantity: str) -> str:
    """A number in short; what is not finite in the word for it."""
    if math.isfinite(value):
        # a loss or perplexity of 33 has three digits like its neighbours; steps and features are whole
        is_whole = value >= 1 and value == round(value) and (quantity not in METRICS or unit_of(quantity) != "1")
        return setting_written(value) if is_whole else written(value, unit_of(quantity))
    return "never" if quantity == STEPS_TO_SOLVE else "diverged"


def between(values: Iterable[float], quantity: str) -> str:
    """The least and the largest: "0.11 to 0.5", or the one value that all have; and how many diverged."""
    listed = list(values)
    found = sorted(value for value in listed if math.isfinite(value))
    words = list(dict.fromkeys(quantity_written(value, quantity) for value in (found[0], found[-1]))) if found else []
    lost = len(listed) - len(found)
    return ", ".join(filter(None, (" to ".join(words), f"{lost} diverged" if lost else "")))


def points_written(at: Sequence[Setting], known: Sequence[Setting]) -> str:
    """Points in short: runs of neighbours among the known ones as "20–100"."""
    places = [known.index(one) for one in at]
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    parts = ["–".join(dict.fromkeys((setting_written(known[run[0]]), setting_written(known[run[-1]])))) for run in runs]
    return ", ".join(parts)


def place_written(at: At) -> str:
    """A value along the axis as it is, "60"; settings by name, "positions none"."""
    if isinstance(at, Point):
        return " and ".join(f"{metric_words(name)} {setting_written(value)}" for name, value in at.items())
    return setting_written(at)


def told(place: tuple[str, At | None], value: float, quantity: str, named: At | None = None) -> str:
    """ "linear 0.25 at 60"; the point is left out where it has been named."""
    variant, at = place
    words = f"{variant} {quantity_written(value, quantity)}"
    return words if at is None or at == named else f"{words} at {place_written(at)}"


def out_of(some: int, all_: int) -> str:
    """ "3 of 4"."""
    return f"{some} of {all_}"


def and_more(items: Sequence[object]) -> str:
    """How many there are beyond the three that were told."""
    return f" and {len(items) - 3} more" if len(items) > 3 else ""


def runs_counted(count: int) -> str:
    """ "1 run", "2 runs"."""
    return "1 run" if count == 1 else f"{count} runs"


def covered(why: str, seen: int, asked: int, what: str = "points") -> str:
    """The reason, and how much of what was claimed it is about, where that is not all."""
    return why if seen == asked else f"{why}; measured: {seen} of {asked} {what}"
