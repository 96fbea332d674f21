"""The page put into a file: read from the database, written whole or not at all."""

from pathlib import Path

from attnbench.harness.destination import check_destination, replace_file
from attnbench.harness.environment import without_password


def write_report(database: str | Path | None, path: Path, *, title: str = "attnbench", measured: bool = False) -> Path:
    """Write the page of `database` to `path` and give the path. Raises UserError where it cannot be written.

    With `measured`, the rows that attnbench ships are laid under those of the database (`reports/measured`); without a
    database they are all that is shown.
    """
    check_report(path)
    from attnbench.reports.learning_curves import SUITES_WITH_CURVES
    from attnbench.reports.measured import reading
    from attnbench.reports.page import page
    from attnbench.reports.text_curves import SUITES_WITH_TEXT_CURVES

    shown = SUITES_WITH_CURVES | SUITES_WITH_TEXT_CURVES
    with reading(database, measured=measured) as read:
        rows = read.rows()
        text = page(
            rows,
            read.suites(),
            read.runs(),
            title=title,
            database="" if database is None else without_password(str(database)),
            curves=read.series({row.attempt_id for row in rows if row.suite in shown}),
        )
    replace_file(path, text.encode())
    return path


def check_report(path: Path) -> None:
    """Raise UserError now, before the work, if a report cannot be written to `path`."""
    check_destination(path, "report", "attnbench.html")
