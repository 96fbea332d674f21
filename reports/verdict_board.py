"""The verdicts as a board: counts, then each claim with its verdict as a symbol and a word; for terminal, page and JSON."""

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from attnbench.harness.errors import UnknownSuite, did_you_mean
from attnbench.harness.rows import Row
from attnbench.reports.published.claims import Claim, Remark, claims, remarks
from attnbench.reports.tables import metric_words
from attnbench.reports.verdicts import Ruling, Verdict, verdicts

if TYPE_CHECKING:
    from rich.console import Console

MEANINGS = {
    Ruling.REPRODUCED: "under the published protocol, all of it, within the tolerance",
    Ruling.DIRECTION_ONLY: "so, but not as a number: beyond the tolerance, from part of the points, or under another protocol",
    Ruling.CONTRADICTED: "under the published protocol, and it is not so",
    Ruling.NOT_COMPARABLE: "what was measured cannot answer it",
    Ruling.NOT_MEASURED: "no row here answers it",
}


class Rows(Protocol):
    """A store, as far as verdicts are read from it."""

    def rows(self) -> list[Row]:
        """The newest attempt of each case, flat."""


@dataclass(frozen=True)
class Board:
    """The verdicts in the order of the claims, how many there are of each, and the remarks on text and code."""

    verdicts: tuple[Verdict, ...]
    remarks: tuple[Remark, ...]

    @property
    def counts(self) -> dict[Ruling, int]:
        """How many claims have each verdict, those that none has too."""
        found = Counter(one.ruling for one in self.verdicts)
        return {ruling: found[ruling] for ruling in Ruling}

    @property
    def by_ruling(self) -> dict[Ruling, tuple[Verdict, ...]]:
        """The verdicts apart by ruling, those that some claim has."""
        found = {ruling: tuple(one for one in self.verdicts if one.ruling is ruling) for ruling in Ruling}
        return {ruling: ones for ruling, ones in found.items() if ones}

    @property
    def meanings(self) -> dict[Ruling, str]:
        """What each verdict means."""
        return MEANINGS


def verdict_board(
    rows: Iterable[Row], suites: Collection[str] | None = None, *, held: Iterable[Claim] | None = None
) -> Board:
    """The board of all claims, or of those of some suites. `held`: the claims, if not all that are known.

    Raises UnknownSuite for a name that no claim has.
    """
    known = tuple(claims() if held is None else held)
    for name in suites or ():
        named = {claim.suite for claim in known}
        if name not in named:
            raise UnknownSuite(f"no published claim is of suite '{name}'. {did_you_mean(name, named)}")
    chosen = [claim for claim in known if not suites or claim.suite in suites]
    theirs = {claim.suite for claim in chosen}
    return Board(verdicts(rows, chosen), tuple(one for one in remarks() if one.suite in theirs))


def because(verdict: Verdict) -> str:
    """Why a verdict is as it is, how many seeds say so, and how many of the attempts were shipped with attnbench."""
    words = [verdict.why]
    if verdict.seeds:
        words.append("1 seed" if verdict.seeds == 1 else f"{verdict.seeds} seeds")
    if verdict.alike is not None:
        alike, alone = verdict.alike
        some, does = ("each", "gives") if alike == alone else (f"{alike} of {alone}", "gives" if alike == 1 else "give")
        words[-1] += f", {some} alone {does} the same verdict"
    shipped, attempts = verdict.shipped
    if shipped:
        words.append(f"{shipped} of {attempts} attempts shipped")
    return "; ".join(filter(None, words))


def show_verdicts(
    store: Rows, console: "Console", *, suites: Collection[str] | None = None, as_json: bool = False
) -> None:
    """Print the verdicts on the claims of the named suites, or of all, and their counts.

    Raises UnknownSuite for a name that no claim has.
    """
    board = verdict_board(store.rows(), suites)
    if as_json:
        console.file.write(as_text(board))
    else:
        print_board(board, console)


def as_text(board: Board) -> str:
    """The board as JSON: counts, verdicts, remarks."""
    listed = {
        "counts": {str(ruling): count for ruling, count in board.counts.items()},
        "verdicts": records_of(board),
        "remarks": [{"id": one.id, "suite": one.suite, "says": one.says} for one in board.remarks],
    }
    return json.dumps(listed, indent=2, ensure_ascii=False) + "\n"


def print_board(board: Board, console: "Console") -> None:
    """Print the verdicts, suite by suite, and their counts."""
    from rich.table import Table
    from rich.text import Text

    for suite in dict.fromkeys(one.claim.suite for one in board.verdicts):
        drawn = Table(title=Text(f"Published claims: {metric_words(suite)}", style="bold"), title_justify="left")
        for head, ratio in (("verdict", None), ("claim", 5), ("published", 4), ("measured", 4), ("why", 5)):
            drawn.add_column(head, ratio=ratio, overflow="fold", no_wrap=ratio is None)
        drawn.expand = True
        drawn.show_lines = True
        for one in board.verdicts:
            if one.claim.suite == suite:
                said = Text(f"{one.ruling.symbol} {one.ruling}", style=_STYLES[one.ruling])
                says = Text.assemble(one.claim.says, (f"\n{one.claim.source}", "dim"))
                drawn.add_row(said, says, Text(one.published), Text(one.measured or "–"), Text(because(one)))
        console.print(drawn)
    console.print(Text(", ".join(f"{count} {ruling}" for ruling, count in board.counts.items()), style="bold"))


_STYLES = {
    Ruling.REPRODUCED: "green",
    Ruling.DIRECTION_ONLY: "cyan",
    Ruling.CONTRADICTED: "red",
    Ruling.NOT_COMPARABLE: "yellow",
    Ruling.NOT_MEASURED: "dim",
}


def records_of(board: Board) -> list[dict[str, Any]]:
    """The verdicts as JSON has them."""
    return [_record(one) for one in board.verdicts]


def _record(verdict: Verdict) -> dict[str, Any]:
    claim = verdict.claim
    shipped, attempts = verdict.shipped
    return {
        "id": claim.id,
        "verdict": str(verdict.ruling),
        "suite": claim.suite,
        "kind": claim.kind,
        "claim": claim.says,
        "source": claim.source,
        "protocol": claim.protocol.says,
        "published": verdict.published,
        "measured": verdict.measured,
        "why": verdict.why,
        "seeds": verdict.seeds,
        "seeds_alike": None if verdict.alike is None else verdict.alike[0],
        "attempts": attempts,
        "attempts_shipped": shipped,
        "note": claim.note,
    }
