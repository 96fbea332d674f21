"""`attnbench export` and `attnbench import`: rows out of a database into a file, and into another database."""

import csv
import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from attnbench.harness.destination import check_destination, replace_file
from attnbench.harness.environment import without_password
from attnbench.harness.errors import BadParameter, UnknownScale, UnknownSuite, UnknownVariant, UserError, did_you_mean
from attnbench.harness.rowfile import SUFFIX, read_rows, write_rows
from attnbench.harness.rows import Row
from attnbench.harness.store import Contents, Store, StoredRun, rows_of
from attnbench.harness.store.nameless import nameless

FORMATS = {"rows": SUFFIX, "csv": ".csv"}


def export(
    database: str,
    path: Path | None,
    form: str | None = None,
    *,
    suites: Collection[str] = (),
    variants: Collection[str] = (),
    scales: Collection[str] = (),
    runs: Collection[str] = (),
    latest: bool = False,
    artefacts: bool = False,
) -> str:
    """Write the chosen attempts to `path` (default: attnbench and the format's suffix); gives what was written, in words.

    Nothing named means all. `form` "rows" is what `bring_in` reads, "csv" a flat table without curves, for other
    programs; None: csv if the file's name says so. Neither names a computer, a user or a folder (`store/nameless.py`).
    `latest` leaves out all but the newest attempt of each case; texts come along only with `artefacts`.
    Raises UserError where the file cannot be written or nothing is chosen, and an Unknown... for a name that nothing
    stored has.
    """
    form = form or ("csv" if path is not None and path.suffix == FORMATS["csv"] else "rows")
    if form not in FORMATS:
        raise BadParameter(f"--format takes rows or csv, got {form!r}. {did_you_mean(form, FORMATS)}")
    path = path or Path(f"attnbench{FORMATS[form]}")
    check_destination(path, "export", f"attnbench{FORMATS[form]}")
    with Store.open(database, writes=False) as store:
        chosen = store.contents(
            suites=suites or None,
            variants=variants or None,
            scales=scales or None,
            runs=runs or None,
            latest=latest,
            artefacts=artefacts,
        )
        asked = {"suite": suites, "variant": variants, "scale": scales, "run": runs}
        _check_names(store, chosen, asked)
    if not chosen.attempts:
        raise UserError(f"{without_password(database)} holds no attempt of what was asked for: nothing to export.")
    chosen = nameless(chosen)
    if form == "csv":
        replace_file(path, _csv(chosen).encode())
    else:
        write_rows(chosen, path)
    return f"{path}: {_counted(len(chosen.attempts), 'attempt')} of {_counted(len(chosen.runs), 'run')}, {_size(path)}"


def bring_in(database: str, paths: Sequence[Path]) -> Iterator[str]:
    """Add the rows of each file to the database, made if it is missing; gives what was added, in words, file by file.

    All files are read before the first row is stored, and each is stored in one transaction: see `Store.add`. Raises
    UserError for a file that is no file of rows and BadDatabase where the database cannot take them.
    """
    files = [(path, read_rows(path)) for path in paths]
    with Store.open(database, writes=True) as store:
        for path, contents in files:
            added = store.add(contents)
            told = f"{_counted(added.attempts, 'attempt')} and {_counted(added.runs, 'run')} added"
            known = f"; {_counted(added.known_attempts, 'attempt')} known before" if added.known_attempts else ""
            yield f"{path}: {told}{known}"


def _check_names(store: Store, chosen: Contents, asked: Mapping[str, Collection[str]]) -> None:
    """Refuse a name that nothing stored has."""
    if not _unknown([rows_of(tried, 0)[0] for tried in chosen.attempts], asked):
        return
    # seldom: a name may be known and yet none of its attempts be chosen
    stored = store.rows(latest=False)
    for what, name in _unknown(stored, asked) if stored else ():
        known = {getattr(row, _FIELDS[what][0]) for row in stored}
        raise _FIELDS[what][1](f"nothing is stored of {what} '{name}'. {did_you_mean(name, known)}")


_FIELDS: Mapping[str, tuple[str, type[UserError]]] = {
    "suite": ("suite", UnknownSuite),
    "variant": ("variant", UnknownVariant),
    "scale": ("scale", UnknownScale),
    "run": ("run_id", UserError),
}


def _unknown(rows: Sequence[Row], asked: Mapping[str, Collection[str]]) -> list[tuple[str, str]]:
    """The names asked for that none of the rows has, each with what it should name."""
    return [
        (what, name)
        for what, names in asked.items()
        for name in names
        if all(getattr(row, _FIELDS[what][0]) != name for row in rows)
    ]


def _csv(contents: Contents) -> str:
    """One line a metric of an attempt, a column for each field and each setting; samples and facts as JSON."""
    rows = [row for number, tried in enumerate(contents.attempts, start=1) for row in rows_of(tried, number)]
    settings = sorted({name for row in rows for name in row.point})
    fields = [name for name in Row.__dataclass_fields__ if name not in {"point", "samples", "facts"}]
    machines = {run.id: _machine(run) for run in contents.runs}
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(
        [*fields, *(f"point.{name}" for name in settings), "samples", "facts", *next(iter(machines.values()))]
    )
    for row in rows:
        lines.writerow(
            [
                *(getattr(row, name) for name in fields),
                *(row.point.get(name, "") for name in settings),
                json.dumps(row.samples),
                json.dumps(dict(row.facts)),
                *machines[row.run_id].values(),
            ]
        )
    return text.getvalue()


def _machine(run: StoredRun) -> Mapping[str, object]:
    return {
        "cpu": run.machine.get("cpu", ""),
        "gpu": run.device.get("gpu", ""),
        "commit": run.commit,
        "is_dirty": run.is_dirty,
    }


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _size(path: Path) -> str:
    kilobytes = path.stat().st_size / 1000
    return f"{kilobytes:.0f} kB" if kilobytes >= 10 else f"{kilobytes:.1f} kB"
