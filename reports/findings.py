"""What readings say of a claim, kind by kind: how much of it they cover, whether it holds, or at least its direction.

Whose readings these are, and whether they may decide the claim, is for `reports/verdicts.py` to say.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from attnbench.harness.spec import Point
from attnbench.reports.agreement import SOLVED, Outcome, agrees
from attnbench.reports.numbers import setting_written, written
from attnbench.reports.published import logged_runs, published
from attnbench.reports.published.claims import (
    REACH,
    At,
    Claim,
    Curve,
    Difference,
    Ending,
    Order,
    Ratio,
    Subject,
    Threshold,
    Value,
)
from attnbench.reports.readings import Readings, published_readings
from attnbench.reports.tables import metric_words, status_words
from attnbench.reports.wording import (
    and_more,
    between,
    covered,
    out_of,
    place_written,
    points_written,
    quantity_written,
    runs_counted,
    told,
)


@dataclass(frozen=True)
class Finding:
    """What readings say of a claim: how much of it was seen, whether that holds, and at least its direction.

    `asked` and `seen` count points or comparisons. `decides` is False where all that was seen compares nothing;
    `is_whole` where comparisons were made from fewer points than published.
    """

    asked: int
    seen: int
    holds: bool
    direction: bool
    measured: str
    why: str
    decides: bool = True
    is_whole: bool = True

    @property
    def is_complete(self) -> bool:
        """Whether all that is claimed was seen."""
        return self.is_whole and self.seen == self.asked


def examine(claim: Claim, readings: Readings) -> Finding:
    """Hold one claim against readings, whatever protocol they are of."""
    match claim.test:
        case Value():
            return _value(claim.test, readings)
        case Ratio():
            return _ratio(claim.test, readings)
        case Difference():
            return _difference(claim.test, readings)
        case Order(quantity=quantity) if quantity == REACH:
            return _reach_order(claim.test, readings, claim.axis)
        case Order():
            return _order(claim.test, readings)
        case Threshold():
            return _threshold(claim.test, readings, claim.axis)
        case Curve():
            return _curve(claim.test, readings, claim.suite)
        case Ending():
            return _ending(claim.test, readings)


def published_words(claim: Claim) -> str:
    """What was published, in the words that the measured is told in."""
    match claim.test:
        case Value(value=None):
            return _bound_words(claim.test)
        case Value(value=int() | float() as value, quantity=quantity, absolute=absolute, relative=relative):
            return _with_tolerance(value, max(absolute, relative * abs(value)), quantity)
        case Ratio(value=value, relative=relative):
            return f"{written(value, '1')} ± {100 * relative:g} %"
        case Difference(value=value, quantity=quantity, absolute=absolute):
            return _with_tolerance(value, absolute, quantity)
        case Curve(variant=variant, at=at):
            runs = [run for run in logged_runs() if (run.suite, run.variant) == (claim.suite, variant) and run.at in at]
            losses = [
                run.best_loss for run in runs if run.is_complete and not run.hit_nan and run.best_loss is not None
            ]
            more = f"; {len(runs) - len(losses)} more in NaN or cut off" if len(losses) < len(runs) else ""
            return f"{runs_counted(len(losses))}, {between(losses, claim.test.quantity)}{more}"
        case Ending(status=status):
            return in_print(claim).measured or status_words(status, "")
    return in_print(claim).measured


def _with_tolerance(value: float, tolerance: float, quantity: str) -> str:
    words = quantity_written(value, quantity)
    return f"{words} ± {quantity_written(tolerance, quantity)}" if tolerance else words


def in_print(claim: Claim) -> Finding:
    """What the published numbers themselves say of a claim."""
    return examine(claim, published_readings(published(), logged_runs(), claim))


def _value(test: Value, readings: Readings) -> Finding:
    places = list(product(test.variants, test.at or (None,)))
    found = _numbers(readings, places, test.quantity)
    above = test.above is not None and all(value > test.above for value in found.values())
    below = test.below is not None and all(value < test.below for value in found.values())
    off = [place for place, value in found.items() if not _is_as_claimed(value, test)]
    what = _bound_words(test) if test.value is None else "within the tolerance"
    why = f"{out_of(len(found) - len(off), len(found))} {what}"
    if off:
        why += f"; not {'; '.join(told(place, found[place], test.quantity) for place in off[:3])}{and_more(off)}"
    return Finding(
        len(places),
        len(found),
        bool(found) and not off,
        bool(found) and (above or below),
        between(found.values(), test.quantity),
        covered(why, len(found), len(places)),
    )


def _is_as_claimed(value: float, test: Value) -> bool:
    """Whether a number is within the tolerance of what was published, or beyond what is all that was."""
    if test.value is None:
        return (test.above is None or value > test.above) and (test.below is None or value < test.below)
    return abs(value - test.value) <= max(test.absolute, test.relative * abs(test.value))


def _bound_words(test: Value) -> str:
    """A bound in words: "above 260"."""
    bounds = (("above", test.above), ("below", test.below))
    return " and ".join(f"{side} {setting_written(at)}" for side, at in bounds if at is not None)


def _ratio(test: Ratio, readings: Readings) -> Finding:
    ratios = []
    for at in test.at:
        upper, lower = (readings.number(name, at, test.quantity) for name in (test.variant, test.over))
        if upper is None or not lower or not math.isfinite(lower):
            continue
        ratios.append(upper / lower)
    off = [one for one in ratios if not abs(one - test.value) <= test.relative * test.value]
    return Finding(
        len(test.at),
        len(ratios),
        bool(ratios) and not off,
        bool(ratios) and all((one > 1) == (test.value > 1) for one in ratios),
        between(ratios, ""),
        covered(
            f"{out_of(len(ratios) - len(off), len(ratios))} within {100 * test.relative:g} %", len(ratios), len(test.at)
        ),
    )


def _difference(test: Difference, readings: Readings) -> Finding:
    one, other = (readings.number(name, None, test.quantity) for name in (test.variant, test.less))
    if one is None or other is None or not math.isfinite(one - other):
        return Finding(1, 0, False, False, "", "")
    found = one - other
    holds = abs(found - test.value) <= test.absolute
    return Finding(
        1,
        1,
        holds,
        (found > 0) == (test.value > 0),
        quantity_written(found, test.quantity),
        f"{out_of(int(holds), 1)} within the tolerance",
    )


def _order(test: Order, readings: Readings) -> Finding:
    better, asked = [], 0
    for at in test.at or (None,):
        for one, two in _opponents(test):
            asked += 1
            places = [(one.variant, at if one.at is None else one.at), (two.variant, at if two.at is None else two.at)]
            found = _numbers(readings, places, test.quantity)
            if len(found) == 2:
                better.append(_Comparison(places[0], places[1], *found.values()))
    ends = (test.at[0], test.at[-1]) if test.at else (None,)
    subjects = [subject for group in test.groups for subject in group]
    shown = []
    for at in dict.fromkeys(ends):
        places = [(subject.variant, at if subject.at is None else subject.at) for subject in subjects]
        found = _numbers(readings, places, test.quantity)
        words = ", ".join(told(place, value, test.quantity, at) for place, value in found.items())
        if words:
            shown.append(f"at {place_written(at)}: {words}" if at is not None else words)
    return _compared(test, better, asked, "; ".join(shown))


def _reach_order(test: Order, readings: Readings, axis: str) -> Finding:
    better, asked = [], 0
    along = [at for at in test.at if isinstance(at, int | float)]
    fewest = len(along)
    reaches: dict[str, str] = {}
    for one, two in _opponents(test):
        asked += 1
        common = [
            at
            for at in along
            if all(readings.number(name.variant, at, "retrieval_loss") is not None for name in (one, two))
        ]
        fewest = min(fewest, len(common))
        if len(common) < 2:
            continue
        first, second = (_reach(readings, name.variant, common, test.reaches_at_most) for name in (one, two))
        better.append(_Comparison((one.variant, None), (two.variant, None), first, second))
        for subject, reach in ((one, first), (two, second)):
            reaches[subject.variant] = setting_written(reach) if reach else f"below {setting_written(common[0])}"
    words = ", ".join(f"{name} {reach}" for name, reach in reaches.items())
    found = _compared(test, better, asked, f"{metric_words(axis)} reached: {words}" if words else "")
    if found.seen == asked and fewest < len(along):
        why = f"{found.why}; read from {fewest} of {len(along)} points"
        return replace(found, why=why, is_whole=False)
    return found


@dataclass(frozen=True)
class _Comparison:
    better: tuple[str, At | None]
    worse: tuple[str, At | None]
    first: float
    second: float


def _opponents(test: Order) -> Iterator[tuple[Subject, Subject]]:
    for front, back in combinations(test.groups, 2):
        yield from product(front, back)


def _reach(readings: Readings, variant: str, at: Sequence[float], bound: float) -> float:
    """The largest axis value up to which every loss is at most the bound; 0 where the first is above."""
    reached = 0.0
    for value in at:
        loss = readings.number(variant, value, "retrieval_loss")
        if loss is None or loss > bound:
            break
        reached = float(value)
    return reached


def _compared(test: Order, comparisons: Sequence[_Comparison], asked: int, measured: str) -> Finding:
    sign = 1 if test.better == "lower" else -1
    reversed_ = [one for one in comparisons if sign * one.first > sign * one.second and not _equal(test, one)]
    strict = [one for one in comparisons if sign * one.first < sign * one.second and not _equal(test, one)]
    tied = [one for one in comparisons if one.first == one.second and not _equal(test, one)]
    seen = len(comparisons)
    decided = len(strict) + len(reversed_)
    why = f"{out_of(len(strict), decided)} in this order" if decided else "all that was compared is equal"
    if decided and seen > decided:
        why += f", {seen - decided} equal"
    if reversed_:
        words = [
            f"{told(one.better, one.first, test.quantity)} against {told(one.worse, one.second, test.quantity)}"
            for one in reversed_[:3]
        ]
        why += f"; reversed: {'; '.join(words)}{and_more(reversed_)}"
    return Finding(
        asked,
        seen,
        bool(strict) and not reversed_ and not tied,
        bool(strict) and len(strict) >= test.most * decided,
        measured,
        covered(why, seen, asked, "comparisons"),
        decides=bool(decided) or not seen,
    )


def _equal(test: Order, one: _Comparison) -> bool:
    """Whether both are as good as training lets them be."""
    return one.first <= test.equal_at_most and one.second <= test.equal_at_most


def _threshold(test: Threshold, readings: Readings, axis: str) -> Finding:
    found = _numbers(readings, product(test.variants, test.at), test.quantity)
    wrong = [place for place, value in found.items() if (value <= test.at_most) != (place[1] in test.holds_at)]
    far = [place for place in wrong if not _is_near(place[1], place[1] in test.holds_at, test)]
    asked = len(test.variants) * len(test.at)
    why = f"{out_of(len(found) - len(wrong), len(found))} on the claimed side of {test.at_most:g}"
    if wrong:
        words = "; ".join(told(place, found[place], test.quantity) for place in wrong[:3])
        why += f"; not {words}{and_more(wrong)}"
        why += f"; the border is at most {test.slack:g} {metric_words(axis)} off" if test.slack and not far else ""
    # a border between two sides is not seen from one of them
    sides = {place[1] in test.holds_at for place in found}
    decides = bool(wrong) or not found or not (test.holds_at and test.fails_at) or len(sides) == 2
    why += "" if decides else ", but all lie on one side of the border"
    return Finding(
        asked,
        len(found),
        bool(found) and decides and not wrong,
        bool(found) and decides and len(found) - len(far) >= test.most * len(found),
        "; ".join(_sides(test, readings, variant) for variant in test.variants) if found else "",
        covered(why, len(found), asked),
        decides,
    )


def _is_near(at: At | None, should_hold: bool, test: Threshold) -> bool:
    """Whether a point on the wrong side lies no further than the slack from the published border."""
    if isinstance(at, str | Point) or at is None or not test.slack:
        return False
    if should_hold:
        return at > max(float(one) for one in test.holds_at) - test.slack
    return at < min(float(one) for one in test.fails_at) + test.slack


def _sides(test: Threshold, readings: Readings, variant: str) -> str:
    """One variant's points in words: "≤ 0.001 at 20–100, then 0.0083–0.411"."""
    found = {at: value for (_, at), value in _numbers(readings, product([variant], test.at), test.quantity).items()}
    below = [at for at in test.at if at in found and found[at] <= test.at_most]
    above = [at for at in test.at if at in found and found[at] > test.at_most]
    known = [at for at in test.at if at in found]
    parts = []
    if below:
        parts.append(f"≤ {test.at_most:g} at {points_written(below, known)}")
    if above:
        parts.append(f"{between((found[at] for at in above), test.quantity)} at {points_written(above, known)}")
    words = ", ".join(parts) or "not measured"
    return f"{variant}: {words}" if len(test.variants) > 1 else words


def _curve(test: Curve, readings: Readings, suite: str) -> Finding:
    runs = [run for run in logged_runs() if (run.suite, run.variant) == (suite, test.variant) and run.at in test.at]
    outcomes = {run.at: agrees(run, readings.numbers(test.variant, run.at, test.quantity)) for run in runs}
    compared = {at: one for at, one in outcomes.items() if one.agrees is not None}
    differing = [at for at, one in compared.items() if not one.agrees]
    same_side = sum(one.same_side for one in compared.values())
    excluded = sum(one.outcome is Outcome.EXCLUDED for one in outcomes.values())
    diverged = sum(one.outcome is Outcome.BOTH_DIVERGED for one in outcomes.values())
    asked = len(runs) - excluded - diverged
    seen = len(compared)
    why = [f"{out_of(seen - len(differing), seen)} agree" if seen else "nothing to compare"]
    if differing:
        why[0] += f", {out_of(same_side, seen)} are on the same side of {SOLVED:g}"
    why += [f"at {setting_written(at)}: {compared[at].difference}" for at in differing[:3]]
    if len(differing) > 3:
        why[-1] += and_more(differing)
    if diverged:
        why.append(f"{diverged} ended in NaN on both sides")
    if excluded:
        why.append(f"{excluded} published in NaN or cut off are compared with nothing")
    numbers = [readings.number(test.variant, at, test.quantity) for at in test.at]
    losses = [loss for loss in numbers if loss is not None]
    return Finding(
        asked,
        seen,
        bool(seen) and not differing,
        bool(seen) and same_side >= test.most * seen,
        f"{runs_counted(len(losses))}, {between(losses, test.quantity)}" if losses else "",
        covered("; ".join(why), seen, asked),
        decides=bool(seen) or not losses,
    )


def _ending(test: Ending, readings: Readings) -> Finding:
    places = list(product(test.variants, test.at or (None,)))
    shares = {
        place: sum(one.status is test.status for one in seen.values()) / len(seen)
        for place in places
        if (seen := {seed: one for seed, one in readings.seen(*place).items() if one.counts})
    }
    like = [place for place, share in shares.items() if share >= 0.5]
    words = f"{out_of(len(like), len(shares))} {test.status.value.replace('_', ' ')}"
    return Finding(
        len(places),
        len(shares),
        bool(shares) and len(like) == len(shares),
        bool(shares) and len(like) >= test.most * len(shares),
        words if shares else "",
        covered(words, len(shares), len(places)),
    )


def _numbers(
    readings: Readings, places: Iterable[tuple[str, At | None]], quantity: str
) -> dict[tuple[str, At | None], float]:
    """The numbers of those places that have one."""
    found = {place: readings.number(*place, quantity) for place in places}
    return {place: value for place, value in found.items() if value is not None}
