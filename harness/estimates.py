"""What each case of a plan would take: FLOPs as its suite counts them, and seconds with where they come from.

    FLOPs      the suite's `cost(lab)`; a model that several cases evaluate is trained once
    seconds    FLOPs at a rate that was given or tried out, else what the database has, else the guess of the suite's grid

Nothing is fetched, trained or stored.
"""

import importlib
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attnbench.harness.errors import Unsupported, UserError
from attnbench.harness.plan import READOUT, Asked
from attnbench.harness.rows import Row, Status
from attnbench.harness.spec import Case, Point, processes_of

if TYPE_CHECKING:
    from attnbench.harness.costs import Cost
    from attnbench.harness.rates import Rate
    from attnbench.variants.contract import Variant

Find = Callable[[str], "Variant"]
Say = Callable[[str], None]
# what cases have in common that stand in one line and run at one rate: suite, variant, form, trained numbers
Kind = tuple[str, str, str, int | None]


@dataclass(frozen=True)
class Counted:
    """What one case takes, as far as its suite can say; `reason` says why it cannot.

    `trains` is False where a case before it trains the same model; `is_skipped` where it would end as skipped.
    """

    asked: Asked
    cost: "Cost | None" = None
    reason: str = ""
    trains: bool = True
    is_skipped: bool = False

    @property
    def kind(self) -> Kind:
        """What it has in common with the cases of its line."""
        case = self.asked.case
        return case.suite, case.variant, case.form, None if self.cost is None else self.cost.parameters

    @property
    def tokens(self) -> int | None:
        """Training tokens."""
        return None if self.cost is None else self.cost.tokens * self.trains

    @property
    def peak_bytes(self) -> int | None:
        """What tensors hold at most in a training step, on one device; None where nobody says."""
        return None if self.cost is None else self.cost.training_bytes or None

    @property
    def flops(self) -> int | None:
        """FLOPs of training and evaluation."""
        return None if self.cost is None else self.cost.flops * self.trains + self.cost.evaluation_flops


@dataclass(frozen=True)
class Timed:
    """The seconds of a case, None where nothing is known, and where they come from."""

    seconds: float | None
    origin: str


def counted(asked: Sequence[Asked], find: Find, say: Say, *, on_gpu: bool = False) -> list[Counted]:
    """What each case takes. `say` is told what is being counted. `on_gpu`: forms for CUDA count, though the device be a CPU."""
    found: dict[Case, Counted] = {}
    trained: set[Case] = set()
    counts = []
    for one in asked:
        # what a case takes does not hang on its seed
        alike = replace(one.case, seed=0)
        if alike not in found:
            say(f"counting {one.case.suite} {one.case.variant}")
            found[alike] = _counted(one, find, on_gpu)
        model = replace(one.case, point=_training_point(one))
        counts.append(replace(found[alike], asked=one, trains=model not in trained))
        trained.add(model)
    return counts


def _counted(one: Asked, find: Find, on_gpu: bool) -> Counted:
    if not one.address:
        return Counted(one)
    variant = find(one.address)
    if reason := _lacks(variant, one.case, on_gpu):
        return Counted(one, reason=reason, is_skipped=True)
    count = getattr(importlib.import_module(one.suite.module), "cost", None)
    if count is None:
        return Counted(one)
    from attnbench.harness.lab import Lab

    def cost(case: Case) -> "Cost":
        return count(Lab(case, variant, evaluation=one.suite.evaluation))

    try:
        found = cost(one.case)
        if (seen := variant.seen_in_place_of(one.case.form)) == one.case.form:
            return Counted(one, found)
        alike = cost(replace(one.case, form=seen))
        found = replace(found, flops=alike.flops, evaluation_flops=alike.evaluation_flops)
        return Counted(one, found, reason=f"FLOPs of form {one.case.form} are taken to be those of form {seen}.")
    except UserError:
        raise
    # a variant of somebody's own, whose form looks into its tensors, say
    except Exception as problem:
        return Counted(one, reason=f"cannot be counted: {_told(problem)}")


def _lacks(variant: "Variant", case: Case, on_gpu: bool) -> str:
    """Why the case would be skipped; empty where it would not."""
    if case.form == READOUT and variant.readout is not None:
        return ""
    try:
        form = variant.form(case.form)
    except Unsupported as lack:
        return str(lack)
    kind = "cuda" if on_gpu else _kind_of(case.device)
    return "" if kind in form.devices else f"{variant.name}/{case.form} needs {' or '.join(form.devices)}, not {kind}."


def _training_point(one: Asked) -> Point:
    return Point({name: value for name, value in one.case.point.items() if name not in one.suite.evaluation})


def given_rates(counts: Iterable[Counted], flops_per_second: float) -> dict[Kind, "Rate"]:
    """One rate for all that is counted: what somebody says that a device does."""
    from attnbench.harness.rates import Rate

    return {one.kind: Rate(flops_per_second, "given") for one in counts if one.cost is not None}


def tried_rates(counts: Iterable[Counted], say: Say) -> dict[Kind, "Rate"]:
    """The rate of each kind of case on its device, tried out: by its own steps where they fit, else by matrix products."""
    import torch

    from attnbench.harness import rates

    products: dict[torch.device, Rate] = {}
    found: dict[Kind, Rate] = {}
    before = torch.get_num_threads()
    try:
        for one in counts:
            if one.cost is None or one.kind in found:
                continue
            case = one.asked.case
            say(f"trying {case.suite} {case.variant}")
            torch.set_num_threads(case.threads)
            device = torch.device(processes_of(case.device)[0])
            stopwatch = rates.on(device)
            problem = "there is no step to try"
            if one.cost.trial is not None:
                try:
                    found[one.kind] = rates.step_rate(one.cost.trial, stopwatch)
                    continue
                except Exception as failure:
                    problem = f"a step failed: {_told(failure)}"
            if device not in products:
                products[device] = rates.product_rate(device, stopwatch)
            rate = products[device]
            found[one.kind] = replace(rate, of=f"{rate.of}, which models are slower than; {problem}")
    finally:
        torch.set_num_threads(before)
    return found


class Known:
    """Seconds of cases that ended well before, from the rows of a database."""

    def __init__(self, rows: Iterable[Row]) -> None:
        attempts = {row.attempt_id: row for row in rows if row.status is Status.OK}
        self._at: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self._anywhere: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for row in attempts.values():
            key = (row.suite, row.variant, row.form, _alike(row.device), row.scale)
            self._at[*key, row.point.json()].append(row.seconds)
            self._anywhere[key].append(row.seconds)

    def seconds(self, case: Case) -> Timed | None:
        """The median of this case with any seed, else that of its suite, variant, form and scale at any point."""
        key = (case.suite, case.variant, case.form, _alike(case.device), case.scale)
        if (taken := self._at.get((*key, case.point.json()))) is not None:
            return Timed(statistics.median(taken), "database")
        if (taken := self._anywhere.get(key)) is not None:
            return Timed(statistics.median(taken), "database, at other points")
        return None


def timed(one: Counted, rates: Mapping[Kind, "Rate"], known: Known) -> Timed:
    """The seconds of a case, from the best source that there is."""
    asked = one.asked
    if one.is_skipped:
        return Timed(0.0, "skipped")
    rate = rates.get(one.kind)
    if rate is not None and one.flops is not None:
        processes = asked.case.processes
        each = f" on each of {processes}" if processes > 1 else ""
        origin = f"{rate.flops_per_second / 1e12:.3g} TFLOP/s{each}, {rate.of}"
        return Timed(one.flops / (rate.flops_per_second * processes), origin)
    found = known.seconds(asked.case)
    if found is not None:
        return found
    # the guess is for a model, not for what counts words
    return Timed(asked.grid.seconds_per_case, "guess") if asked.address else Timed(None, "not known")


def _kind_of(device: str) -> str:
    """cpu or cuda: `cuda:1` and `cuda*4` are the second."""
    return processes_of(device)[0].partition(":")[0]


def _alike(device: str) -> str:
    """The device without which of several it is."""
    return f"{_kind_of(device)}*{processes_of(device)[1]}"


def _told(problem: Exception) -> str:
    return f"{type(problem).__name__}: {(str(problem).strip() or 'no message').splitlines()[0]}"
