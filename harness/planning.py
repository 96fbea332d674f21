"""`attnbench plan`: what it would cost. Nothing is run, fetched or stored.

Cases of one suite, variant, form and number of parameters stand in one line. All figures of a line are of all its cases
together, hours of one after the other, each on its own device.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from attnbench.harness.data.fetch import is_cached
from attnbench.harness.devices import GIB, Room, room_here, room_of_gpu
from attnbench.harness.errors import BadParameter
from attnbench.harness.estimates import Counted, Known, Timed, counted, given_rates, timed, tried_rates
from attnbench.harness.plan import Asked, Request, plan
from attnbench.harness.progress import Log
from attnbench.harness.running import Options, check_wishes, planned_cases
from attnbench.harness.spec import Case, Suite
from attnbench.harness.store import Store

if TYPE_CHECKING:
    from attnbench.harness.rows import Row

HOUR = 3600.0


@dataclass(frozen=True)
class Wishes:
    """How to come to hours, beside what is asked.

    `tflops`: effective TFLOP/s of one device. With `tries` they are measured here. `may_lack_database` says that there
    need not be one. `gpu` names the one that memory is held against, the request's own device if there is no name.
    """

    database: str
    tflops: float | None = None
    tries: bool = False
    may_lack_database: bool = False
    gpu: str = ""


@dataclass(frozen=True)
class Line:
    """Cases that have suite, variant, form and number of parameters in common, taken together.

    None where nothing is known: for `done`, where that hangs on a data set that is not here; for `hours`, where it is so
    for one of the cases. `hours_left` leaves out those that are done. `origins` say where the hours come from. `peak_bytes`
    is the most that tensors hold on one device, of the largest case; `exceeds` says what there is, where that is less.
    """

    suite: str
    variant: str
    form: str
    cases: int
    done: int | None
    parameters: int | None
    tokens: int | None
    flops: int | None
    hours: float | None
    hours_left: float | None
    origins: tuple[str, ...]
    notes: tuple[str, ...]
    peak_bytes: int | None = None
    exceeds: str = ""


def plan_suites(
    suites: Mapping[str, Suite], request: Request, wishes: Wishes, console: Console, *, as_json: bool
) -> None:
    """Print what the cases of a request would take. Raises a UserError for a mistake."""
    log = Log(stderr=True)
    with log.status("planning") as status:
        lines = lines_of(suites, request, wishes, lambda text: status.update(text))
    if as_json:
        console.file.write(as_text(lines, request))
    else:
        print_lines(lines, request, suites, console)


def lines_of(
    suites: Mapping[str, Suite], request: Request, wishes: Wishes, say: Callable[[str], None] = lambda text: None
) -> list[Line]:
    """The lines of a request, in the order of its cases. `say` is told what is being done. Raises a UserError."""
    from attnbench.variants.registry import find

    _check(wishes)
    options = Options(wishes.database, offline=True)
    check_wishes(request, options)
    asked = plan(suites, request, find)
    rows, done = _looked_up(asked, wishes, options)
    counts = counted(asked, find, say, on_gpu=bool(wishes.gpu))
    if wishes.tries:
        rates = tried_rates(counts, say)
    else:
        rates = {} if wishes.tflops is None else given_rates(counts, wishes.tflops * 1e12)
    known = Known(rows)
    groups: dict[tuple[object, ...], list[tuple[Counted, Timed]]] = defaultdict(list)
    for one in counts:
        groups[one.kind].append((one, timed(one, rates, known)))
    room = room_of_gpu(wishes.gpu) if wishes.gpu else room_here(request.device)
    return [_line(group, done, room) for group in groups.values()]


def _check(wishes: Wishes) -> None:
    """Refuse wishes that make no sense. Raises BadParameter, UnknownDevice."""
    if wishes.gpu:
        room_of_gpu(wishes.gpu)
    if wishes.tflops is None:
        return
    if wishes.tries:
        raise BadParameter("--tflops gives the throughput and --probe measures it. Use one of them.")
    if not 0 < wishes.tflops < math.inf:
        raise BadParameter(f"a throughput is a number of TFLOP/s above 0, got {wishes.tflops:g}. Use 50.")


def _looked_up(asked: Sequence[Asked], wishes: Wishes, options: Options) -> "tuple[list[Row], dict[Case, bool]]":
    """The rows of these suites at this scale, and which cases are done; a case whose data set is not here is in no one's books."""
    names = {name for one in asked for name in one.suite.data(one.case.point)}
    here = {name for name in names if is_cached(name)}
    planned = planned_cases(
        [one for one in asked if here.issuperset(one.suite.data(one.case.point))], options, Log(stderr=True)
    )
    if wishes.may_lack_database and not Path(wishes.database).exists():
        return [], {one.case: False for one in asked}
    with Store.open(wishes.database, writes=False) as store:
        done = {one.case: store.is_done(one.case, one.identity) for one in planned}
        chosen = {one.case.suite for one in asked}, {one.case.scale for one in asked}
        return store.rows(suites=chosen[0], scales=chosen[1]), done


def _line(group: Sequence[tuple[Counted, Timed]], done: Mapping[Case, bool], room: Room | None) -> Line:
    counts = [one for one, _ in group]
    suite, variant, form, parameters = counts[0].kind
    seconds = [(one.asked.case, taken.seconds) for one, taken in group]
    peak = max((one.peak_bytes for one in counts if one.peak_bytes is not None), default=None)
    return Line(
        suite,
        variant,
        form,
        len(group),
        _sum(done.get(one.asked.case) for one in counts),
        parameters,
        _sum(one.tokens for one in counts),
        _sum(one.flops for one in counts),
        _hours(taken for _, taken in seconds),
        _hours(taken for case, taken in seconds if not done.get(case)),
        tuple(dict.fromkeys(taken.origin for _, taken in group)),
        tuple(dict.fromkeys(one.reason for one in counts if one.reason)),
        peak,
        f"{_gibibytes(room.bytes)} that {room.device} has for it" if peak and room and peak > room.bytes else "",
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum, None where one is not known."""
    listed = list(numbers)
    known = [one for one in listed if one is not None]
    return sum(known) if len(known) == len(listed) else None


def _hours(seconds: Iterable[float | None]) -> float | None:
    listed = list(seconds)
    known = [one for one in listed if one is not None]
    return sum(known) / HOUR if len(known) == len(listed) else None


@dataclass(frozen=True)
class Total:
    """Lines taken together; `unknown` cases have no hours, `uncounted` ones no FLOPs."""

    cases: int
    done: int
    flops: int
    hours: float
    hours_left: float
    unknown: int
    uncounted: int


def total(lines: Iterable[Line]) -> Total:
    """The sum over lines, of what is known."""
    listed = list(lines)
    return Total(
        cases=sum(one.cases for one in listed),
        done=sum(one.done or 0 for one in listed),
        flops=sum(one.flops or 0 for one in listed),
        hours=sum(one.hours or 0.0 for one in listed),
        hours_left=sum(one.hours_left or 0.0 for one in listed),
        unknown=sum(one.cases for one in listed if one.hours is None),
        uncounted=sum(one.cases for one in listed if one.flops is None),
    )


def as_text(lines: Sequence[Line], request: Request) -> str:
    """The lines and their sum as JSON."""
    listed = {
        "scale": request.scale,
        "device": request.device,
        "lines": [asdict(one) for one in lines],
        "sum": asdict(total(lines)),
    }
    return json.dumps(listed, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Column:
    """A column of the table: its head, a line's cell, and the sum's."""

    head: str
    cell: Callable[[Line], str]
    sum: Callable[[Total], str] = lambda whole: ""
    is_number: bool = True


COLUMNS = (
    Column("variant", lambda line: line.variant, lambda whole: "sum", is_number=False),
    Column("form", lambda line: line.form, is_number=False),
    Column("cases", lambda line: str(line.cases), lambda whole: str(whole.cases)),
    Column("done", lambda line: UNKNOWN if line.done is None else str(line.done), lambda whole: str(whole.done)),
    Column("parameters", lambda line: _short(line.parameters)),
    Column("training tokens", lambda line: _short(line.tokens)),
    Column("peak memory", lambda line: _gibibytes(line.peak_bytes) + " !" * bool(line.exceeds)),
    Column("FLOPs", lambda line: _scientific(line.flops), lambda whole: _scientific(whole.flops or None)),
    Column("a case", lambda line: _duration(None if line.hours is None else line.hours / line.cases)),
    Column("in all", lambda line: _duration(line.hours), lambda whole: _duration(whole.hours)),
    Column("from", lambda line: "; ".join(line.origins), is_number=False),
)
WIDEST = 1000
UNKNOWN = "?"
NOTHING = "–"


def print_lines(lines: Sequence[Line], request: Request, suites: Mapping[str, Suite], console: Console) -> None:
    """Print a table a suite, of the columns that say something, then what could not be counted, and the sum."""
    for suite in dict.fromkeys(line.suite for line in lines):
        theirs = [line for line in lines if line.suite == suite]
        drawn = _table(f"{suites[suite].title}, {request.scale}", theirs)
        # no figure is broken over lines: on a narrow terminal a whole row is
        width = console.width
        needed = Measurement.get(console, console.options.update(width=WIDEST), drawn).maximum
        console.width = max(width, needed)
        console.print(drawn)
        console.width = width
        for line in theirs:
            for note in line.notes:
                console.print(Text.assemble((line.variant, "bold"), f": {note}"))
    for words in _words(lines, request):
        console.print(Text(words))


def _table(title: str, lines: Sequence[Line]) -> Table:
    drawn = Table(title=Text(title, style="bold"), title_justify="left", box=SIMPLE, pad_edge=False, show_footer=True)
    telling = [column for column in COLUMNS if any(column.cell(line) != NOTHING for line in lines)]
    for column in telling:
        drawn.add_column(
            Text(column.head),
            Text(column.sum(total(lines))),
            justify="right" if column.is_number else "left",
            no_wrap=True,
        )
    for line in lines:
        drawn.add_row(*(Text(column.cell(line)) for column in telling))
    return drawn


def _words(lines: Sequence[Line], request: Request) -> Iterable[str]:
    """The sum in words, and what the figures mean."""
    whole = total(lines)
    cases = "1 case" if whole.cases == 1 else f"{whole.cases} cases"
    yield (
        f"{cases}, {whole.done} done before: {_duration(whole.hours)} one after the other on {request.device}, "
        f"{_duration(whole.hours_left)} of it left."
    )
    if whole.unknown:
        yield f"Of {whole.unknown} of them the time is not known."
    if any(line.done is None for line in lines):
        yield f"{UNKNOWN}: whether they are done hangs on a data set that is not here."
    for room in dict.fromkeys(line.exceeds for line in lines if line.exceeds):
        names = dict.fromkeys(line.variant for line in lines if line.exceeds == room)
        yield (
            f"! Will not fit: a training step of {', '.join(names)} holds more than the {room}. Cut the batch into more parts "
            "(--set accumulation=N), or train each model with several processes."
        )
    if any(line.peak_bytes is not None for line in lines):
        yield (
            "Peak memory: what tensors hold at most in a training step on one device, with weights, gradients and Adam's "
            "moments, predicted on tensors without contents. The workspaces of CUDA's libraries and what an allocator cannot "
            "use come on top."
        )
    if whole.flops:
        yield (
            "FLOPs: training and evaluation of all cases, a multiplication and an addition counting one each, attention under "
            "a causal mask not halved. A model that several cases evaluate is trained once."
        )


def _short(number: int | None) -> str:
    """A count in four digits: 44.02M."""
    if number is None:
        return NOTHING
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.4g}{letter}"
    return str(number)


def _gibibytes(number: int | None) -> str:
    """Bytes in three digits, in MiB or GiB."""
    if number is None:
        return NOTHING
    return f"{number / GIB:.3g} GiB" if number >= GIB else f"{number / 2**20:.3g} MiB"


def _scientific(number: int | None) -> str:
    return NOTHING if number is None else f"{number:.3g}"


def _duration(hours: float | None) -> str:
    """Hours, in the unit that suits them."""
    if hours is None:
        return NOTHING
    if hours >= 1000:
        return f"{hours:,.0f} h"
    for unit, seconds in (("h", HOUR), ("min", 60.0)):
        if hours * HOUR >= seconds:
            return f"{hours * HOUR / seconds:.3g} {unit}"
    return f"{hours * HOUR:.3g} s"
