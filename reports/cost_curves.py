"""How the time of a variant grows with the text, and from which length on it is faster than softmax attention.

    exponent     slope of log time against log T, least squares over the lengths from an eighth of the longest up
    crossover    the T from which on the variant takes less time than softmax at all longer lengths, between two lengths where
                 the logarithm of the ratio, linear in log T, is zero

Time is that of a whole call in training and prefill, that of one token behind T others in decoding. Intervals are 95 % of a
bootstrap over the rounds in which variants were timed in turn, so that a round is drawn for both sides together.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from attnbench.harness.rows import Row, Status
from attnbench.harness.spec import Setting
from attnbench.reports.numbers import setting_written

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SOFTMAX = "softmax"
DECODING = "decode_tokens_per_second"
TIMED = ("training_tokens_per_second", "prefill_tokens_per_second", DECODING, "model_training_tokens_per_second")
SHORTEST_SHARE = 1 / 8
_BOOTSTRAPS, _BOOTSTRAP_SEED = 2000, 0


@dataclass(frozen=True)
class CostCurve:
    """The seconds of one variant in one form against T: at each length one number a round. `attempts` were timed for it."""

    variant: str
    form: str
    metric: str
    settings: tuple[tuple[str, Setting], ...]
    seconds: Mapping[int, tuple[float, ...]]
    attempts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Fitted:
    """A number with its interval; `low` and `high` are None where there is none. Infinite: beyond the last length; minus
    infinity: before the first.
    """

    at: float
    low: float | None = None
    high: float | None = None


def curves_of(rows: Iterable[Row], axis: str) -> list[CostCurve]:
    """The curves of timing rows with at least two lengths; the newest attempt of a case counts."""
    found: dict[tuple[str, str, str, tuple[tuple[str, Setting], ...]], dict[int, tuple[float, ...]]] = {}
    behind: dict[tuple[str, str, str, tuple[tuple[str, Setting], ...]], dict[int, int]] = {}
    for row in rows:
        length = row.point.get(axis)
        if row.status is not Status.OK or row.metric not in TIMED or not isinstance(length, int):
            continue
        settings = tuple((name, value) for name, value in row.point.items() if name != axis)
        rates = row.samples or (() if row.value is None else (row.value,))
        tokens = 1 if row.metric == DECODING else length
        if rates and min(rates) > 0:
            key = (row.variant, row.form, row.metric, settings)
            found.setdefault(key, {})[length] = tuple(tokens / rate for rate in rates)
            behind.setdefault(key, {})[length] = row.attempt_id
    return [
        CostCurve(*key, dict(sorted(seconds.items())), tuple(behind[key].values()))
        for key, seconds in found.items()
        if len(seconds) > 1
    ]


def exponent(curve: CostCurve) -> Fitted:
    """The exponent with which the time grows at the longest lengths."""
    lengths = _fitted(curve)
    drawn = _medians(curve, lengths)
    slopes = _slopes(lengths, drawn)
    return _with_interval(float(_slopes(lengths, _observed(curve, lengths))[0]), slopes, _has_rounds(curve, lengths))


def crossover(curve: CostCurve, softmax: CostCurve) -> Fitted | None:
    """From which length on the curve lies below that of softmax; None where they share fewer than two lengths."""
    lengths = [length for length in curve.seconds if length in softmax.seconds]
    if len(lengths) < 2:
        return None
    observed = _crossings(lengths, _observed(curve, lengths) / _observed(softmax, lengths))
    drawn = _crossings(lengths, _medians(curve, lengths) / _medians(softmax, lengths))
    has_rounds = _has_rounds(curve, lengths) and _has_rounds(softmax, lengths)
    return _with_interval(float(observed[0]), drawn, has_rounds)


def crossover_written(found: Fitted, lengths: Sequence[int]) -> str:
    """The crossover in short: 1,350, "from 256 on", "none up to 4,096"."""
    if found.at == -math.inf:
        return f"from {setting_written(lengths[0])} on"
    return f"none up to {setting_written(lengths[-1])}" if found.at == math.inf else setting_written(round(found.at))


def interval_written(found: Fitted, lengths: Sequence[int]) -> str:
    """The interval of a crossover: "1,100 – 1,600", "900 – > 4,096"; empty without one."""
    if found.low is None or found.high is None:
        return ""
    ends = [_end_written(one, lengths) for one in (found.low, found.high)]
    return "" if ends[0] == ends[1] else " – ".join(ends)


def fastest(curves: Sequence[CostCurve]) -> CostCurve | None:
    """Of several forms the one that takes the least time at the longest length that it has."""
    return min(curves, key=lambda one: median(one.seconds[max(one.seconds)]) / max(one.seconds), default=None)


def _end_written(at: float, lengths: Sequence[int]) -> str:
    if at == -math.inf:
        return f"< {setting_written(lengths[0])}"
    return f"> {setting_written(lengths[-1])}" if at == math.inf else setting_written(round(at))


def _fitted(curve: CostCurve) -> list[int]:
    """The lengths that the exponent is fitted to: two at least."""
    lengths = list(curve.seconds)
    long = [length for length in lengths if length >= lengths[-1] * SHORTEST_SHARE]
    return long if len(long) > 1 else lengths[-2:]


def _observed(curve: CostCurve, lengths: Sequence[int]) -> "Array":
    """The medians, [1,lengths]."""
    import numpy as np

    return np.array([[median(curve.seconds[length]) for length in lengths]])


def _medians(curve: CostCurve, lengths: Sequence[int]) -> "Array":
    """The medians of rounds drawn again, [draws,lengths]. The same rounds are drawn for every curve with as many."""
    import numpy as np

    columns = []
    for length in lengths:
        samples = np.array(curve.seconds[length])
        generator = np.random.default_rng((_BOOTSTRAP_SEED, length, len(samples)))
        columns.append(np.median(samples[generator.integers(len(samples), size=(_BOOTSTRAPS, len(samples)))], axis=1))
    return np.stack(columns, axis=1)


def _slopes(lengths: Sequence[int], seconds: "Array") -> "Array":
    """The slope of each row of seconds [draws,lengths], in logarithms."""
    import numpy as np

    x = np.log(np.array(lengths, dtype=float))
    x = x - x.mean()
    y = np.log(seconds)
    return ((y - y.mean(1, keepdims=True)) * x).sum(1) / (x**2).sum()


def _crossings(lengths: Sequence[int], ratios: "Array") -> "Array":
    """Where each row of ratios [draws,lengths] falls below one for good."""
    import numpy as np

    x, y = np.log(np.array(lengths, dtype=float)), np.log(ratios)
    found = np.full(len(y), -math.inf)
    for row, values in enumerate(y):
        slower = np.flatnonzero(values >= 0)
        if len(slower):
            last = int(slower[-1])
            if last == len(lengths) - 1:
                found[row] = math.inf
            else:
                share = values[last] / (values[last] - values[last + 1])
                found[row] = math.exp(x[last] + share * (x[last + 1] - x[last]))
    return found


def _with_interval(at: float, drawn: "Array", has_rounds: bool) -> Fitted:
    import numpy as np

    if not has_rounds:
        return Fitted(at)
    ordered = np.sort(drawn)
    low, high = (float(ordered[round(share * (len(ordered) - 1))]) for share in (0.025, 0.975))
    return Fitted(at, min(low, at), max(high, at))


def _has_rounds(curve: CostCurve, lengths: Sequence[int]) -> bool:
    return all(len(curve.seconds[length]) > 2 for length in lengths)
