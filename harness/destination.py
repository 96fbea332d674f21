"""A file that a command writes: refused before the work where it cannot be, and written whole or not at all."""

import os
import secrets
from pathlib import Path

from attnbench.harness.errors import UserError

_SQLITE = b"SQLite format 3\0"


def check_destination(path: Path, what: str, usual: str) -> None:
    """Raise UserError now, before the work, if `what` (report, export) cannot be written to `path`; `usual` is a name for it."""
    try:
        is_folder, is_other = path.is_dir(), path.exists() and not path.is_file()
        has_folder = path.parent.is_dir()
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}. Choose another place with --output.") from error
    if is_folder:
        raise UserError(f"a file was needed for the {what}, but {path} is a folder. Try {path / usual}.")
    if is_other:
        raise UserError(
            f"a file was needed for the {what}, but {path} is a device or a pipe. Choose another with --output."
        )
    if _is_database(path):
        raise UserError(f"{path} is a database, which the {what} would replace. Choose another file with --output.")
    if not has_folder:
        raise UserError(f"no folder {path.parent} for the {what} {path}. Make it first: mkdir -p {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UserError(
            f"the folder {path.parent} of the {what} {path} cannot be written. Choose another with --output."
        )


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` into `path`, whole or not at all. Raises UserError where it cannot be written."""
    # beside the target, so that the last step is a rename: readers see the old file or the new one, never half of one
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}. Choose another place with --output."
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False
