"""Why FAVOR+ fails as it was published: what its sums are divided by, from the rows.

    y = W phi(q) / (z . phi(q) + 1e-6)        phi(x) = exp(-|x|^2 / 2) / sqrt(2m) [exp(Rx); exp(-Rx)]

Where z . phi(q) is far below the epsilon the read is zero, whatever the memory holds, and the loss is exactly 0.5.
`+scaled` multiplies inputs by K^-1/4 and subtracts a maximum from the exponents.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from attnbench.harness.rows import Row, Status
from attnbench.reports.grids import Cell, Line, Table
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.palette import family
from attnbench.reports.passage import Passage, ending_cell
from attnbench.reports.tables import RETRIEVES, SuiteFacts, order

# Of the published normalisation: arXiv:2102.11174, released code of section 6.1.
EPSILON = 1e-6
_EPSILON_WRITTEN = "1e-6"
ZERO_READ_LOSS = 0.5
_FAMILY, _SCALED = "performer", "+scaled"
_METRICS = ("retrieval_loss", "denominator_at_start", "denominator_at_end")
_HEADS = ("loss", "denominator at start", "denominator at end")
_MOST_LINES = 8

# variant, pairs, protocol
_Key = tuple[str, float, str]
# metric -> the median of the seeds
_Medians = dict[_Key, dict[str, float]]
# of one variant and protocol: pairs -> metric -> median
_Curve = Mapping[float, Mapping[str, float]]


def denominators_passage(rows: Sequence[Row], suite: SuiteFacts) -> tuple[Passage, ...]:
    """The denominators of the unscaled FAVOR+ beside the scaled one's; nothing where none was measured."""
    found = _medians(rows, suite.axis)
    unscaled = [key for key in found if family(key[0]) == _FAMILY and "+" not in key[0]]
    if not any("denominator_at_start" in found[key] for key in unscaled):
        return ()
    # the one that was measured most, and of those the first
    names = sorted({key[0] for key in unscaled}, key=order)
    plain = max(names, key=lambda name: (name + _SCALED in {key[0] for key in found}, -names.index(name)))
    protocols = sorted({key[2] for key in found if key[0] == plain})
    table = _table(found, rows, plain, protocols, suite.axis)
    protocol = max(protocols, key=lambda one: sum(key[0] == plain and key[2] == one for key in found))
    return (Passage("FAVOR+ and its denominator", tuple(_in_words(found, plain, protocol)), (table,)),)


def _table(found: _Medians, rows: Sequence[Row], plain: str, protocols: Sequence[str], axis: str) -> Table:
    variants = [name for name in (plain, plain + _SCALED) if any(key[0] == name for key in found)]
    asked = sorted({key[1] for key in found if key[0] in variants})
    # the first ones, where it happens, and the last
    shown = asked if len(asked) <= _MOST_LINES else [*asked[: _MOST_LINES - 1], asked[-1]]
    lines = []
    for pairs in shown:
        for protocol in protocols:
            cells = [cell for name in variants for cell in _cells((name, pairs, protocol), found, rows, axis)]
            labels = (setting_written(pairs), *([protocol] if len(protocols) > 1 else []))
            if any(cell.value is not None for cell in cells):
                lines.append(Line(labels[0], labels, tuple(cells)))
    heads = (axis, "protocol") if len(protocols) > 1 else (axis,)
    notes = ("Denominator: the median over queries of z · φ(q), before 1e-6 is added; medians of the seeds",)
    columns = tuple(f"{name}: {head}" for name in variants for head in _HEADS)
    return Table("Loss and denominators", notes, heads, "", columns, tuple(lines))


def _cells(key: _Key, found: _Medians, rows: Sequence[Row], axis: str) -> Iterator[Cell]:
    for metric in _METRICS:
        value = found.get(key, {}).get(metric)
        behind = [row for row in rows if _key(row, axis) == key]
        if value is None:
            yield ending_cell(metric, behind)
        else:
            attempts = dict.fromkeys(row.attempt_id for row in behind if row.metric == metric)
            yield Cell(metric, written(value, "1"), value=value, attempts=tuple(attempts))


def _key(row: Row, axis: str) -> _Key | None:
    pairs = row.point.get(axis)
    if not isinstance(pairs, int | float):
        return None
    return (row.variant, float(pairs), str(row.point.get("protocol", "")))


def _in_words(found: _Medians, plain: str, protocol: str) -> list[str]:
    """The paragraphs: what the published form does, and what is left when it is mended; each number is from a row."""
    theirs = {key[1]: values for key, values in sorted(found.items()) if key[::2] == (plain, protocol)}
    scaled = {key[1]: values for key, values in sorted(found.items()) if key[::2] == (plain + _SCALED, protocol)}
    published = (
        f"FAVOR+ replaces exp(q · k) by random features φ. Each carries a factor exp(−|k|²/2), and the published form ({plain}) "
        "does not scale its keys: |k|² grows with the width of the embedding, which is 2.2 S for S pairs. So the denominator "
        "z · φ(q), a sum over all S keys that ought to grow with S, shrinks instead."
    )
    mended = _mended(plain + _SCALED, scaled, theirs)
    return [" ".join((published, *_sinking(theirs))), *([mended] if mended else [])]


def _sinking(theirs: _Curve) -> Iterator[str]:
    """How the denominator of the published form falls below the epsilon, and what the loss is there."""
    starts = _along(theirs, "denominator_at_start")
    told = list(starts.items())
    told = told if len(told) <= 4 else [*told[:3], told[-1]]
    listed = ", ".join(f"{written(value, '1')} at S = {setting_written(pairs)}" for pairs, value in told)
    yield f"At the start of training its median is {listed}."
    sunk = [pairs for pairs, value in starts.items() if value < EPSILON]
    if not sunk:
        return
    is_rest = sunk == [pairs for pairs in starts if pairs >= sunk[0]]
    where = f"From S = {setting_written(sunk[0])} on" if is_rest else f"At S = {', '.join(map(setting_written, sunk))}"
    yield (
        f"{where} it is below the {_EPSILON_WRITTEN} that is added to it against a division by zero. The sum is then divided by "
        "that constant, and what is read goes to zero, whatever was written."
    )
    ends = _along(theirs, "denominator_at_end")
    ended = [ends[pairs] for pairs in sunk if pairs in ends]
    if ended:
        does = "does not lift it" if max(ended) < EPSILON else "lifts it in some cases"
        yield f"Training {does}: at the end it is {_range(ended)} there."
    losses = _along(theirs, "retrieval_loss")
    stuck = [losses[pairs] for pairs in sunk if pairs in losses]
    if stuck:
        ends_at = "–".join(dict.fromkeys((f"{min(stuck):.4f}", f"{max(stuck):.4f}")))
        yield f"The loss of reading zero is exactly {ZERO_READ_LOSS}; the best losses there are {ends_at}."


def _mended(name: str, scaled: _Curve, theirs: _Curve) -> str:
    """What the scaled form changes, and what it leaves."""
    starts, before = _along(scaled, "denominator_at_start"), _along(theirs, "denominator_at_start")
    if not starts:
        return ""
    words = (
        f"With inputs times K^(−1/4) and a maximum subtracted from the exponents ({name}) the denominator starts at "
        f"{_range(starts.values())}."
    )
    ours, published = _along(scaled, "retrieval_loss"), _along(theirs, "retrieval_loss")
    both = sorted(set(ours) & set(published))
    if not both:
        return words
    pairs = both[0]
    seen = [one[pairs][metric] for one in (theirs, scaled) for metric in _METRICS[1:] if metric in one[pairs]]
    losses = f"{written(published[pairs], '1')} unscaled and {written(ours[pairs], '1')} scaled"
    # a hundredfold, so that the epsilon changes a read by less than a hundredth
    if pairs not in before or pairs not in starts or min(seen) < 100 * EPSILON or ours[pairs] <= RETRIEVES:
        return f"{words} At S = {setting_written(pairs)} the losses are {losses}."
    return (
        f"{words} At S = {setting_written(pairs)}, where neither denominator is small against {_EPSILON_WRITTEN}, the losses are "
        f"{losses}: what is left there is not arithmetic but the genuine variance of random features."
    )


def _along(curve: _Curve, metric: str) -> dict[float, float]:
    return {pairs: values[metric] for pairs, values in curve.items() if metric in values}


def _range(values: Iterable[float]) -> str:
    low, high = min(some := list(values)), max(some)
    return " to ".join(dict.fromkeys((written(low, "1"), written(high, "1"))))


def _medians(rows: Sequence[Row], axis: str) -> _Medians:
    values: dict[_Key, dict[str, list[float]]] = {}
    for row in rows:
        key = _key(row, axis)
        if row.status is Status.OK and row.metric in _METRICS and row.value is not None and key is not None:
            values.setdefault(key, {}).setdefault(row.metric, []).append(row.value)
    return {key: {metric: median(found) for metric, found in metrics.items()} for key, metrics in values.items()}
