"""The page put into a file: read from the database, written whole or not at all."""

import os
import secrets
from pathlib import Path

from attnbench.harness.environment import without_password
from attnbench.harness.errors import UserError


def write_report(database: str | Path, path: Path, *, title: str = "attnbench") -> Path:
    """Write the page of `database` to `path` and give the path. Raises UserError where it cannot be written."""
    check_destination(path)
    from attnbench.harness.store import Store
    from attnbench.reports.page import page

    with Store.open(database, writes=False) as store:
        text = page(store.rows(), store.suites(), store.runs(), title=title, database=without_password(str(database)))
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
