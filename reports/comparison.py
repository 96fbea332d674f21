"""Two selections of rows held against each other, case by case: ratios with intervals.

    A, B       KEY=VALUE[,KEY=VALUE...]: run, suite, variant, form, scale, device, seed, metric, or a setting of the point
    matched    rows that agree in all that neither side names; a form need not agree where a variant is named
    ratio      B / A of the medians, above one where B is larger

Intervals are 95 % of a bootstrap: over seeds where both sides have three or more in common; else over the rounds of a
timing, drawn together for both sides where one run timed them in turn. Two seeds give their range, and one reading a side gives
no interval.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from attnbench.harness.errors import BadParameter, did_you_mean
from attnbench.harness.metrics import METRICS
from attnbench.harness.rows import Artefact, Row, Status
from attnbench.harness.spec import Setting
from attnbench.reports.grids import Cell, Line, Table
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.paired import METRIC, paired_table
from attnbench.reports.tables import NOT_SET, metric_words, order
from attnbench.reports.terminal import print_table
from attnbench.reports.wording import quantity_written, unit_of

if TYPE_CHECKING:
    from rich.console import Console

FIELDS = ("run", "suite", "variant", "form", "scale", "device", "seed", "metric")
SEEDS_FOR_AN_INTERVAL = 3
ROUNDS_FOR_AN_INTERVAL = 5
_BOOTSTRAPS, _BOOTSTRAP_SEED = 4000, 0
# what a case is matched by, beside the settings of its point; a seed pairs readings within a case
_MATCHED = ("suite", "scale", "device", "variant", "form", "threads", "metric")

Selector = Mapping[str, str]
Key = tuple[tuple[str, Setting], ...]


class Reader(Protocol):
    """A store, as far as it is read here."""

    def rows(self, *, latest: bool = True) -> list[Row]:
        """All attempts, flat."""

    def artefacts(self, attempt_ids: Iterable[int]) -> Mapping[int, Sequence[Artefact]]:
        """The texts of these attempts."""


@dataclass(frozen=True)
class Ratio:
    """B / A, the ends of its interval (None without one), of how many readings a side and of what kind these are."""

    value: float
    low: float | None
    high: float | None
    n: int
    counted: str

    @property
    def is_apart(self) -> bool:
        """Whether the interval leaves 1 out."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True)
class Compared:
    """One metric of one case on both sides: medians over seeds and what they are to each other.

    `key` names the case by all that both sides share; `behind` has the attempts of A and those of B.
    """

    key: Key
    a: float
    b: float
    ratio: Ratio
    behind: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


@dataclass(frozen=True)
class Comparison:
    """All cases that both sides have, and how many rows of each side found none on the other.

    `pairs` are the rows of BLEU of both sides, seed by seed.
    """

    cases: tuple[Compared, ...]
    only_a: int
    only_b: int
    is_of_two_machines: bool
    pairs: tuple[tuple[Row, Row], ...] = ()


def parse_selector(text: str) -> dict[str, str]:
    """`variant=delta,form=triton` by name. Raises BadParameter."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name or not value:
            raise BadParameter(
                f"a selector is KEY=VALUE[,KEY=VALUE...], as in variant=delta,form=chunkwise; got '{text}'."
            )
        if name in found:
            raise BadParameter(f"a selector names each key once; got '{text}'.")
        found[name] = value
    return found


def compare(rows: Sequence[Row], a: Selector, b: Selector) -> Comparison:
    """Both sides of `rows`, all attempts of a database. Raises BadParameter for a selector that selects nothing or too much."""
    settings = {name for row in rows for name in row.point}
    for name in (*a, *b):
        if name not in FIELDS and name not in settings:
            raise BadParameter(f"no key '{name}' to select by. {did_you_mean(name, (*FIELDS, *settings))}")
    named = {*a, *b} | ({"form"} if "variant" in {*a, *b} else set())
    sides = [_side(rows, selector, named) for selector in (a, b)]
    shared = [key for key in sides[0] if key in sides[1]]
    if not shared:
        raise BadParameter(
            "A and B have no case in common: they have to agree in everything that neither names, settings included. "
            f"A is {_told(sides[0])}; B is {_told(sides[1])}."
        )
    cases = []
    for key in shared:
        ones, others = sides[0][key], sides[1][key]
        ratio = ratio_of(ones, others)
        if ratio is not None:
            behind = tuple(row.attempt_id for row in ones), tuple(row.attempt_id for row in others)
            cases.append(Compared(key, _median(ones), _median(others), ratio, behind))
    beds = [{row.testbed for key in shared for row in side[key]} for side in sides]
    return Comparison(
        tuple(sorted(cases, key=lambda one: [(name, order(value)) for name, value in one.key])),
        len(sides[0]) - len(shared),
        len(sides[1]) - len(shared),
        bool(beds[0] - {""}) and beds[0] != beds[1],
        tuple(
            (one, other)
            for key in shared
            for one in sides[0][key]
            for other in sides[1][key]
            if one.metric == METRIC and one.seed == other.seed
        ),
    )


def _side(rows: Sequence[Row], selector: Selector, named: set[str]) -> dict[Key, list[Row]]:
    """The newest readings of a side by case, one a seed. Raises BadParameter."""
    found: dict[Key, dict[int, Row]] = {}
    for row in rows:
        if row.value is None or row.status is not Status.OK or not _is_selected(row, selector):
            continue
        known = found.setdefault(_key(row, named), {})
        before = known.get(row.seed)
        if before is not None and (before.variant, before.form, before.point) != (row.variant, row.form, row.point):
            raise BadParameter(
                f"{_spelled(selector)} selects more than one of a kind: {_case(before)} and {_case(row)}. Say which."
            )
        # rows come in the order in which they were stored
        known[row.seed] = row
    if not found:
        raise BadParameter(f"nothing that is stored and ended well fits {_spelled(selector)}.")
    return {key: list(seeds.values()) for key, seeds in found.items()}


def _is_selected(row: Row, selector: Selector) -> bool:
    return all(value == _text(row, name) for name, value in selector.items())


def _text(row: Row, name: str) -> str | None:
    """A field or setting as it is written in a selector; None where the row has no such setting."""
    if name == "run":
        return row.run_id
    if name in FIELDS:
        return str(getattr(row, name))
    return str(row.point[name]) if name in row.point else None


def _key(row: Row, named: set[str]) -> Key:
    fields: dict[str, Setting] = {name: getattr(row, name) for name in _MATCHED}
    return tuple((name, value) for name, value in {**fields, **row.point}.items() if name not in named)


def ratio_of(a: Sequence[Row], b: Sequence[Row]) -> Ratio | None:
    """B / A of one case; None where a side has a reading that is not above zero."""
    if any(row.value is None or row.value <= 0 for row in (*a, *b)):
        return None
    of_a, of_b = ({row.seed: row for row in side} for side in (a, b))
    seeds = sorted(of_a.keys() & of_b.keys())
    if len(seeds) > 1:
        ratios = [_value(of_b[seed]) / _value(of_a[seed]) for seed in seeds]
        low, high = (min(ratios), max(ratios)) if len(seeds) < SEEDS_FOR_AN_INTERVAL else interval_of(ratios)
        return Ratio(statistics.median(ratios), low, high, len(seeds), "seeds")
    first, second = (of_a[seeds[0]], of_b[seeds[0]]) if seeds else (a[0], b[0])
    rounds = [tuple(row.samples) for row in (first, second)]
    if min(map(len, rounds)) >= ROUNDS_FOR_AN_INTERVAL:
        is_paired = first.run_id == second.run_id and len(rounds[0]) == len(rounds[1])
        value, low, high = interval_of_medians(*rounds, is_paired=is_paired)
        return Ratio(value, low, high, min(map(len, rounds)), "rounds")
    return Ratio(_median(b) / _median(a), None, None, 1, "seeds")


def interval_of(ratios: Sequence[float]) -> tuple[float, float]:
    """95 % of a bootstrap of the median."""
    import numpy as np

    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    drawn = generator.choice(np.array(ratios), size=(_BOOTSTRAPS, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(low), float(high)


def interval_of_medians(a: Sequence[float], b: Sequence[float], *, is_paired: bool) -> tuple[float, float, float]:
    """The ratio of the medians, B / A, and 95 % of its bootstrap; paired samples are drawn together."""
    import numpy as np

    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    ones, others = np.array(a), np.array(b)
    places = generator.integers(len(ones), size=(_BOOTSTRAPS, len(ones)))
    further = places if is_paired else generator.integers(len(others), size=(_BOOTSTRAPS, len(others)))
    ratios = np.median(others[further], axis=1) / np.median(ones[places], axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return statistics.median(b) / statistics.median(a), float(low), float(high)


def show_comparison(store: Reader, console: "Console", a: str, b: str) -> None:
    """Print the ratios of two selections, a table a metric. Raises BadParameter."""
    from rich.text import Text

    found = compare(store.rows(latest=False), parse_selector(a), parse_selector(b))
    console.print(Text(f"A: {a}\nB: {b}"))
    for table in tables_of(found.cases):
        console.print()
        print_table(table, console)
        console.print(Text(". ".join(table.notes) + ".", style="dim"))
    texts = store.artefacts({row.attempt_id for pair in found.pairs for row in pair}) if found.pairs else {}
    if (by_sentence := paired_table(found.pairs, texts)) is not None:
        console.print()
        print_table(by_sentence, console)
        console.print(Text(". ".join(by_sentence.notes) + ".", style="dim"))
    for words in remarks_of(found):
        console.print(Text(words, style="yellow"))


def remarks_of(found: Comparison) -> Iterable[str]:
    """What a reader must know of the two sides, in sentences."""
    if found.is_of_two_machines:
        yield "A and B were timed on different machines."
    if not found.cases:
        yield "No case in common has numbers above zero on both sides, so there is no ratio."
    for side, count in (("A", found.only_a), ("B", found.only_b)):
        if count:
            yield f"{count} number{'' if count == 1 else 's'} of {side} without a counterpart."


def tables_of(cases: Sequence[Compared]) -> tuple[Table, ...]:
    """A table for each suite, scale and device, its lines told apart by metric and by the settings that vary."""
    groups: dict[tuple[Setting | None, ...], list[Compared]] = {}
    for case in cases:
        named = dict(case.key)
        groups.setdefault(tuple(named.get(name) for name in _HEADED), []).append(case)
    return tuple(_table(group) for group in groups.values())


_HEADED = ("suite", "scale", "device")


def _table(group: Sequence[Compared]) -> Table:
    keys = [dict(case.key) for case in group]
    names = list(dict.fromkeys(name for key in keys for name in key))
    varying = [name for name in names if name == "metric" or len({key.get(name) for key in keys}) > 1]
    # the metric first, then what the numbers hang on
    varying.sort(key=lambda name: name != "metric")
    counts = [(case.ratio.n, case.ratio.counted) for case in group]
    usual = max(set(counts), key=lambda one: (counts.count(one), one))
    notes = [
        "B / A of the medians" + _spread_words(*usual),
        "Better: the side that its metric's direction and the interval speak for",
    ]
    same = {name: keys[0][name] for name in names if name not in varying and name not in _HEADED}
    if same:
        told = (f"{metric_words(name)} {setting_written(value)}" for name, value in same.items())
        notes.append(f"The same everywhere: {', '.join(told)}")
    return Table(
        ", ".join(str(keys[0][name]) for name in _HEADED if name in keys[0]),
        tuple(notes),
        tuple(varying),
        "",
        ("A", "B", "B / A", "better"),
        tuple(Line("", _labels(key, varying), _cells(case)) for case, key in zip(group, keys, strict=True)),
        usual,
    )


def _spread_words(n: int, counted: str) -> str:
    """What stands below a ratio."""
    if n == 1:
        return ", one reading a side and so no interval, unless the cell says n"
    kind = "the range" if counted == "seeds" and n < SEEDS_FOR_AN_INTERVAL else "95 % of a bootstrap"
    return f", below it {kind} over {n} {counted} a side, unless the cell says n"


def _labels(key: Mapping[str, Setting], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        metric_words(str(key[name])) if name == "metric" else setting_written(key.get(name, NOT_SET)) for name in names
    )


def _cells(case: Compared) -> tuple[Cell, ...]:
    ratio, metric = case.ratio, str(dict(case.key).get("metric", ""))
    spread = "" if ratio.low is None or ratio.high is None else f"{ratio.low:.3g} – {ratio.high:.3g}"
    return (
        Cell(metric, _number(case.a, metric), value=case.a, attempts=case.behind[0]),
        Cell(metric, _number(case.b, metric), value=case.b, attempts=case.behind[1]),
        Cell(
            metric,
            f"{ratio.value:.3g}",
            value=ratio.value,
            spread=spread,
            n=ratio.n,
            counted=ratio.counted,
            attempts=tuple(dict.fromkeys((*case.behind[0], *case.behind[1]))),
        ),
        Cell(metric, _reading(ratio, metric)),
    )


def _number(value: float, metric: str) -> str:
    """A number in its unit; bytes in the one that suits them."""
    return written(value, "B") if unit_of(metric) == "B" else quantity_written(value, metric)


def _reading(ratio: Ratio, metric: str) -> str:
    """Which side is better, as far as the interval tells."""
    better = METRICS[metric].better if metric in METRICS else "neither"
    if better == "neither" or ratio.low is None:
        return NOT_SET
    if not ratio.is_apart:
        return "not told apart"
    return "B" if (ratio.value > 1) == (better == "higher") else "A"


def _value(row: Row) -> float:
    assert row.value is not None
    return row.value


def _median(rows: Sequence[Row]) -> float:
    return statistics.median(map(_value, rows))


def _spelled(selector: Selector) -> str:
    return ",".join(f"{name}={value}" for name, value in selector.items())


def _case(row: Row) -> str:
    return f"{row.suite}/{row.variant}/{row.form}/{row.point}"


def _told(side: Mapping[Key, Sequence[Row]]) -> str:
    """The first case of a side, and how many there are."""
    row = next(iter(side.values()))[0]
    return _case(row) + (f" and {len(side) - 1} more" if len(side) > 1 else "")
