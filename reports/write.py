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
    from attnbench.reports.measured import reading
    from attnbench.reports.page import page
    from attnbench.reports.sections import section_of

    with reading(database, measured=measured) as read:
        rows = read.rows()
        tried = {row.attempt_id: section_of(row.suite) for row in rows}
        text = page(
            rows,
            read.suites(),
            read.runs(),
            title=title,
            database="" if database is None else without_password(str(database)),
            curves=read.series(number for number, section in tried.items() if section.needs_curves),
            texts=read.artefacts(tried),
        )
    replace_file(path, text.encode())
    return path


def check_report(path: Path) -> None:
    """Raise UserError now, before the work, if a report cannot be written to `path`."""
    check_destination(path, "report", "attnbench.html")
