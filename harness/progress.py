"""How far a run is: a bar with the time left on a terminal, plain lines in a log."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from attnbench.harness.jobs import Outcome, Planned
from attnbench.harness.metrics import METRICS
from attnbench.harness.rows import Measurement, Status

# on a terminal, more cases at once are shown without what they say
SPEAKERS = 4
# in a log, how often a case that runs says how far it is
SAYS_EVERY_SECONDS = 300.0

COLOURS = {Status.OK: "green", Status.SKIPPED: "dim", Status.DIVERGED: "yellow"}


class Log(Console):
    """The console of a run. When whoever reads it hangs up, the run ends as it does after Ctrl-C."""

    def on_broken_pipe(self) -> None:
        """Let what is still to be said go nowhere, and stop."""
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())
        raise KeyboardInterrupt


class Display:
    """Shows cases as they end, what runs now, and the time left.

    The time left goes by the seconds that cases of the same suite have taken so far, by the suites' own guess before.
    """

    def __init__(
        self, console: Console, todo: Sequence[Planned], workers: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console
        self.workers = workers
        self.clock = clock
        self.left = {planned.case.key(): planned for planned in todo}
        self.count = len(todo)
        self.ended = self.waited_for = 0
        self.taken: dict[str, list[float]] = defaultdict(list)
        self.expected: dict[str, list[float]] = defaultdict(list)
        self.running: dict[int, tuple[str, float, str]] = {}
        # of each worker: the case that it is at, and when that last spoke in the log
        self.spoke: dict[int, tuple[str, float]] = {}
        self.bar: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[left]}"),
                console=self.console,
            )
            self.task = self.bar.add_task("starting", total=self.count, left="")
            self.bar.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def doing(self, worker: int, planned: Planned, fraction: float, note: str) -> None:
        """A worker has come this far with a case."""
        case = planned.case
        self.running[worker] = (f"{case.suite}/{case.variant}", fraction, note)
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, description=self._shown(), left=self.time_left())
            return
        now, key = self.clock(), case.key()
        at, since = self.spoke.get(worker, ("", now))
        if at != key:
            self.spoke[worker] = key, now
        elif now - since >= SAYS_EVERY_SECONDS:
            self.spoke[worker] = key, now
            words = ", ".join(filter(None, (f"{100 * fraction:.0f} %", note)))
            self._print(f"{'':>9} {'running':<13} {case.suite} {case.variant} {_where(planned)}: {words}", "dim")

    def idle(self, worker: int) -> None:
        """A worker has nothing to do."""
        self.running.pop(worker, None)

    def already_done(self, planned: Planned) -> None:
        """Another run has done this case meanwhile."""
        self._over(planned)

    def waiting(self, count: int) -> None:
        """Nothing is left but so many cases that another run is at."""
        if count != self.waited_for:
            self.waited_for = count
            cases = f"{count} case{'' if count == 1 else 's'}"
            self.console.print(f"waiting for {cases} that another run is at", markup=False, highlight=False)

    def over(self, planned: Planned, outcome: Outcome) -> None:
        """A case has ended."""
        self.taken[planned.case.suite].append(outcome.seconds)
        self.expected[planned.case.suite].append(planned.expected_seconds)
        self._over(planned)
        headline = _headline(planned, outcome)
        if outcome.status is Status.OK and headline is not None:
            unit = METRICS[headline.metric].unit
            said = f"{headline.metric} {headline.value:.4g}" + ("" if unit == "1" else f" {unit}")
        else:
            said = outcome.reason
        left = self.time_left()
        count = f"{self.ended}/{self.count}"
        self._print(
            f"{count:>9} {outcome.status.value:<13} {planned.case.suite} {planned.case.variant} {_where(planned)}: {said} "
            f"({outcome.seconds:.1f} s)" + ("" if self.bar is not None or not left else f"; {left}"),
            COLOURS.get(outcome.status, "red"),
        )

    def time_left(self) -> str:
        """The time left in words, empty when nothing is left."""
        seconds = sum(self._expected(planned) for planned in self.left.values())
        if not self.left:
            return ""
        workers = max(1, min(self.workers, len(self.left)))
        minutes = seconds / workers / 60
        return f"about {minutes:.0f} min left" if minutes >= 1.5 else f"about {max(60 * minutes, 1):.0f} s left"

    def _shown(self) -> str:
        """What runs now: a line each with what the case says of itself, or without that all in one."""
        running = [(f"{label} {100 * done:.0f}%", note) for label, done, note in sorted(self.running.values())]
        if len(running) > SPEAKERS or not any(note for _, note in running):
            return ", ".join(label for label, _ in running)
        return "\n".join(f"{label} {note}".rstrip() for label, note in running)

    def _print(self, text: str, style: str) -> None:
        """One line, however long, as it is."""
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def _over(self, planned: Planned) -> None:
        if self.left.pop(planned.case.key(), None) is not None:
            self.ended += 1
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=self.ended, left=self.time_left())

    def _expected(self, planned: Planned) -> float:
        """The guess for a case, corrected by how far the guesses of its suite have been off."""
        guessed = sum(self.expected[planned.case.suite])
        ratio = sum(self.taken[planned.case.suite]) / guessed if guessed else 1.0
        return planned.expected_seconds * ratio


def _headline(planned: Planned, outcome: Outcome) -> Measurement | None:
    """The measurement that the suite is read by, else the first there is."""
    rank = {name: at for at, name in enumerate(planned.metrics)}
    return min(outcome.measurements, key=lambda one: rank.get(one.metric, len(rank)), default=None)


def _where(planned: Planned) -> str:
    """The settings that tell the case from its neighbours: its axis and words, not its constants."""
    case = planned.case
    telling = [
        f"{name}={value}" for name, value in case.point.items() if name == planned.axis or isinstance(value, str)
    ]
    return " ".join([*telling, f"form={case.form}", f"seed={case.seed}"])
