"""Do a measured and a published training run say the same? Pairs of them, and the rule that decides.

    both retrieve     best loss at most 0.001 on both sides
    both fail         both above, and the losses within 0.05 of each other or within 20 % of the published one
    both diverged     both ended in a loss that is not finite: no number agrees, so it is a class of its own
    differs           one retrieves and the other does not, or both fail with losses further apart
    excluded          the published log broke off, or ended in NaN where the measured run did not
    not measured      no run of the published protocol is among the rows

Several seeds count as one by their median loss; a seed that diverged is above all others.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from statistics import median

from attnbench.harness.rows import Row, Status
from attnbench.reports.measured import is_shipped
from attnbench.reports.published import LoggedRun, logged_runs
from attnbench.reports.published.protocol import protocols
from attnbench.reports.tables import status_words

# Where the published runs stop, so a loss at or below is as good as any other there.
SOLVED = 0.001
ABSOLUTE_TOLERANCE = 0.05
RELATIVE_TOLERANCE = 0.2

# What a row has to share with the released logs to be compared with them as a number.
LOGGED = protocols()["logs"]


class Outcome(StrEnum):
    """How a measured run stands to the published one."""

    BOTH_RETRIEVE = "both retrieve"
    BOTH_FAIL = "both fail"
    BOTH_DIVERGED = "both diverged"
    DIFFERS = "differs"
    EXCLUDED = "excluded"
    NOT_MEASURED = "not measured"


class Difference(StrEnum):
    """In what a measured run differs from the published one."""

    NONE = ""
    MEASURED_RETRIEVES = "measured retrieves, published does not"
    MEASURED_FAILS = "published retrieves, measured does not"
    MEASURED_DIVERGED = "measured diverged, published did not"
    LOSS_DIFFERS = "both fail, with different losses"


@dataclass(frozen=True)
class Agreement:
    """The outcome of one comparison. `difference` says in what they differ, `reason` why nothing was compared."""

    outcome: Outcome
    difference: Difference = Difference.NONE
    reason: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether the two say the same; None where there was nothing to compare.

        NaN against NaN is not counted either way: read `outcome`.
        """
        if self.outcome in {Outcome.BOTH_RETRIEVE, Outcome.BOTH_FAIL}:
            return True
        return False if self.outcome is Outcome.DIFFERS else None

    @property
    def same_side(self) -> bool:
        """Whether both retrieve or both fail, however far apart their losses are."""
        return bool(self.agrees) or self.difference is Difference.LOSS_DIFFERS

    def __str__(self) -> str:
        more = self.difference or self.reason
        return f"{self.outcome}: {more}" if more else str(self.outcome)


@dataclass(frozen=True)
class MeasuredRun:
    """One measured run of one seed. `best_loss` is NaN where the run diverged; `last_loss` and `steps` may be unknown.

    `attempts` has the attempt that it is.
    """

    seed: int
    best_loss: float
    last_loss: float | None = None
    steps: int | None = None
    attempts: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Pair:
    """A published run and the measured ones of the same suite, variant, axis value and protocol, by seed.

    `endings` are the seeds that gave no number (a timeout, say) and their words.
    """

    published: LoggedRun
    measured: tuple[MeasuredRun, ...] = ()
    endings: Mapping[int, str] = field(default_factory=dict, hash=False)

    @property
    def suite(self) -> str:
        """The suite of both."""
        return self.published.suite

    @property
    def variant(self) -> str:
        """The variant of both."""
        return self.published.variant

    @property
    def at(self) -> int:
        """The axis value of both: the number of pairs or keys."""
        return self.published.at

    @property
    def attempts(self) -> tuple[int, ...]:
        """The attempts that were measured."""
        return tuple(number for run in self.measured for number in run.attempts)

    @property
    def losses(self) -> dict[int, float]:
        """The best measured loss by seed; NaN where that run diverged."""
        return {run.seed: run.best_loss for run in self.measured}

    @property
    def agreement(self) -> Agreement:
        """Whether the two say the same."""
        found = agrees(self.published, self.losses)
        if found.outcome is Outcome.NOT_MEASURED and self.endings:
            words = "; ".join(f"seed {seed} {ending}" for seed, ending in sorted(self.endings.items()))
            return Agreement(found.outcome, reason=words)
        return found


def agrees(published: LoggedRun, losses: Mapping[int, float]) -> Agreement:
    """How the measured losses of one case, by seed, stand to the published run."""
    if not published.is_complete:
        return Agreement(Outcome.EXCLUDED, reason=f"the published log breaks off at step {published.steps}")
    theirs = published.best_loss
    ours = median_loss(losses.values())
    if published.hit_nan or theirs is None:
        if ours is not None and not math.isfinite(ours):
            return Agreement(Outcome.BOTH_DIVERGED)
        return Agreement(Outcome.EXCLUDED, reason="the published run ended in NaN")
    if ours is None:
        return Agreement(Outcome.NOT_MEASURED)
    if not math.isfinite(ours):
        return Agreement(Outcome.DIFFERS, Difference.MEASURED_DIVERGED)
    if ours <= SOLVED and theirs <= SOLVED:
        return Agreement(Outcome.BOTH_RETRIEVE)
    if ours <= SOLVED:
        return Agreement(Outcome.DIFFERS, Difference.MEASURED_RETRIEVES)
    if theirs <= SOLVED:
        return Agreement(Outcome.DIFFERS, Difference.MEASURED_FAILS)
    if abs(ours - theirs) <= max(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * theirs):
        return Agreement(Outcome.BOTH_FAIL)
    return Agreement(Outcome.DIFFERS, Difference.LOSS_DIFFERS)


def median_loss(losses: Iterable[float]) -> float | None:
    """The median of the losses of several seeds, infinite where half of them diverged; None of none."""
    values = [loss if math.isfinite(loss) else math.inf for loss in losses]
    return median(values) if values else None


def pairs(rows: Iterable[Row], runs: Iterable[LoggedRun] | None = None) -> tuple[Pair, ...]:
    """Each published run with what was measured under its protocol. `runs`: all 320, if not given."""
    theirs = logged_runs() if runs is None else tuple(runs)
    axes = {run.suite: run.axis for run in theirs}
    cases: dict[tuple[object, ...], dict[int, dict[int, list[Row]]]] = {}
    for row in rows:
        at = row.point.get(axes.get(row.suite, ""))
        if at is not None and LOGGED.fits(row):
            seeds = cases.setdefault((row.suite, row.variant, at), {})
            seeds.setdefault(row.seed, {}).setdefault(row.attempt_id, []).append(row)
    return tuple(_pair(run, cases.get((run.suite, run.variant, run.at), {})) for run in theirs)


def _pair(published: LoggedRun, seeds: Mapping[int, Mapping[int, list[Row]]]) -> Pair:
    measured: list[MeasuredRun] = []
    endings: dict[int, str] = {}
    for seed, tries in sorted(seeds.items()):
        found = [run for run in map(_measured, newest_first(tries.values())) if run is not None]
        if found:
            measured.append(found[0])
        else:
            row = next(iter(newest_first(tries.values())))[0]
            endings[seed] = status_words(row.status, row.reason)
    return Pair(published, tuple(measured), endings)


def newest_first(tries: Iterable[list[Row]]) -> list[list[Row]]:
    """Attempts, each as its rows: the database's own before shipped ones, then the newest before the others."""

    def rank(rows: list[Row]) -> tuple[bool, datetime, int]:
        return (not is_shipped(rows[0]), rows[0].started_at, rows[0].attempt_id)

    return sorted(tries, key=rank, reverse=True)


def _measured(rows: list[Row]) -> MeasuredRun | None:
    """What one attempt says; None where it ended without a number."""
    status, seed = rows[0].status, rows[0].seed
    values = {row.metric: row.value for row in rows if row.value is not None}
    steps, last_loss = values.get("training_steps"), values.get("last_retrieval_loss")
    whole = None if steps is None else int(steps)
    if status is Status.DIVERGED:
        return MeasuredRun(seed, math.nan, last_loss, whole, (rows[0].attempt_id,))
    if status is not Status.OK or "retrieval_loss" not in values:
        return None
    return MeasuredRun(seed, values["retrieval_loss"], last_loss, whole, (rows[0].attempt_id,))
