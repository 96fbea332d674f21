"""The folder that fetched and derived data lie in. A file there is whole or absent, whoever is killed while writing it."""

import hashlib
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import platformdirs


def cache_folder(cache: Path | None = None) -> Path:
    """`cache`, or the user's own folder for cached data. It need not exist."""
    return platformdirs.user_cache_path("attnbench") / "data" if cache is None else Path(cache)


def read(path: Path, sha256: str) -> bytes | None:
    """What `path` holds, if it can be read and has this hash."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == sha256 else None


def file_sha256(path: Path) -> str | None:
    """The SHA-256 of what `path` holds, if it can be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def is_there(path: Path) -> bool:
    """Whether something lies at `path`, readable or not."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def write(path: Path, content: bytes) -> None:
    """Puts `content` at `path` in one step, over what was there. Raises OSError, and then leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that becomes `path` in one step when the block ends, over what was there; nothing where it raises."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """An empty folder whose files move into `folder` when the block ends, each over the one of its name; none where it raises."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as unfinished:
        yield Path(unfinished)
        for path in sorted(Path(unfinished).iterdir()):
            path.replace(folder / path.name)
