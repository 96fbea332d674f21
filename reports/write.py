"""The page put into a file: read from the database, written whole or not at all."""

import os
import secrets
from pathlib import Path

from attnbench.harness.environment import without_password
from attnbench.harness.errors import UserError


def write_report(database: str | Path, path: Path, *, title: str = "attnbench", measured: bool = False) -> Path:
    """Write the page of `database` to `path` and give the path. Raises UserError where it cannot be written.

    With `measured`, the rows that attnbench ships are laid under those of the database (`reports/measured`).
    """
    check_destination(path)
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
    _replace(path, text)
    return path


def check_destination(path: Path) -> None:
    """Raise UserError now, before the work, if a report cannot be written to `path`."""
    if path.is_dir():
        raise UserError(f"a report is a file, but {path} is a folder. Try {path / 'attnbench.html'}.")
    if not path.parent.is_dir():
        raise UserError(f"no folder {path.parent} for the report {path}. Make it first: mkdir -p {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UserError(
            f"the folder {path.parent} of the report {path} cannot be written. Choose another with --output."
        )


def _replace(path: Path, text: str) -> None:
    # beside the target, so that the last step is a rename: readers see the old page or the new one, never half of one
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise UserError(
            f"the report {path} cannot be written: {error.strerror or error}. Choose another place with --output."
        ) from error
    finally:
        draft.unlink(missing_ok=True)
