"""The page put into a file: read from the database, written whole or not at all."""

from pathlib import Path

from attnbench.harness.destination import check_destination, replace_file
from attnbench.harness.environment import without_password


def write_report(database: str | Path, path: Path, *, title: str = "attnbench", measured: bool = False) -> Path:
    """Write the page of `database` to `path` and give the path. Raises UserError where it cannot be written.

    With `measured`, the rows that attnbench ships are laid under those of the database (`reports/measured`).
    """
    check_report(path)
    from attnbench.harness.store import Store
    from attnbench.reports.learning_curves import SUITES_WITH_CURVES
    from attnbench.reports.measured import overlaid
    from attnbench.reports.page import page

    with Store.open(database, writes=False) as store:
        read = overlaid(store) if measured else store
        rows = read.rows()
        text = page(
            rows,
            read.suites(),
            read.runs(),
            title=title,
            database=without_password(str(database)),
            curves=read.series({row.attempt_id for row in rows if row.suite in SUITES_WITH_CURVES}),
        )
    replace_file(path, text.encode())
    return path


def check_report(path: Path) -> None:
    """Raise UserError now, before the work, if a report cannot be written to `path`."""
    check_destination(path, "report", "attnbench.html")
