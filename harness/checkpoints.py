"""What a long training is gone on from after it was killed: one file for each training, whole or absent.

A file is written beside the old one and put in its place in one step, so that a kill at any moment leaves the old or the
new one. What lies in the folder can be removed at any time; `attnbench ls checkpoints` says what it is.
"""

import hashlib
import json
import os
import secrets
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import platformdirs
import torch

# dicts, lists and tuples of tensors, numbers, texts and None: what torch loads without running anything
State = dict[str, Any]
PLAIN = (int, float, bool, str, type(None))
FORMAT = "attnbench checkpoint 1"
EVERY_SECONDS = 600.0
# whoever began a file so long ago and has not put it in its place was killed
ABANDONED_SECONDS = 3600.0


def checkpoint_folder(folder: Path | None = None) -> Path:
    """`folder`, or the user's own folder for checkpoints. It need not exist."""
    return platformdirs.user_cache_path("attnbench") / "checkpoints" if folder is None else Path(folder)


@dataclass(frozen=True)
class Saved:
    """What a file holds: how many steps were taken, the state after them, and whether training had ended."""

    training: Mapping[str, str | int]
    step: int
    is_finished: bool
    written_at: float
    state: State


@dataclass
class Checkpoint:
    """The file of one training.

    `training` is all that its numbers hang on; a file of another training is not taken. It is due `every_seconds` of
    training, or, where that is given, `every_steps`. A training that is shorter leaves no file. One that ended before
    `trained_since` (seconds since 1970) is not taken, so that it is done again.

    What cannot be read or written costs nothing but time: it is warned of (RuntimeWarning), and training goes on.
    """

    folder: Path
    training: Mapping[str, str | int]
    every_seconds: float = EVERY_SECONDS
    every_steps: int | None = None
    trained_since: float = 0.0
    resumed_at: int = 0
    _saved: float = field(default_factory=time.monotonic)
    _warned: set[str] = field(default_factory=set)

    @property
    def path(self) -> Path:
        """Where the file is, if there is one."""
        return self.folder / f"{hashlib.sha256(json.dumps(self.training, sort_keys=True).encode()).hexdigest()[:32]}.pt"

    def load(self) -> Saved | None:
        """What is there to go on from. A damaged or foreign file is warned of and counts as none."""
        if not self.path.exists():
            return None
        try:
            saved = read(self.path)
        except Exception as problem:
            self._warn("it cannot be read, and training begins anew", problem)
            return None
        if saved.training != self.training:
            self._warn("it belongs to another training, and this one begins anew")
            return None
        return None if saved.is_finished and saved.written_at < self.trained_since else saved

    def is_due(self, step: int) -> bool:
        """Whether it is time to save after this step."""
        if self.every_steps is not None:
            return step % self.every_steps == 0
        return time.monotonic() - self._saved >= self.every_seconds

    def keeps(self, steps: int, seconds: float) -> bool:
        """Whether a training that ended after so many steps and seconds was long enough for its weights to be kept."""
        return seconds >= self.every_seconds if self.every_steps is None else steps >= self.every_steps

    def save(self, step: int, state: State, *, is_finished: bool = False) -> None:
        """Write the state after `step` in place of what was there. Raises TypeError for what could not be read again."""
        _check_plain(state)
        content = {
            "format": FORMAT,
            "training": dict(self.training),
            "step": step,
            "is_finished": is_finished,
            "written_at": time.time(),
            "state": state,
        }
        try:
            _replace(self.path, content)
        # torch tells a disk that is full as a RuntimeError of its own
        except (OSError, RuntimeError) as problem:
            self._warn("it cannot be written, and training goes on without", problem)
        self._saved = time.monotonic()

    def remove(self) -> None:
        """Let there be nothing to go on from."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as problem:
            self._warn("it cannot be removed", problem)

    def _warn(self, what: str, problem: Exception | None = None) -> None:
        """Say once what is wrong with the file."""
        if what not in self._warned:
            self._warned.add(what)
            why = "" if problem is None else f" ({_first_line(problem)})"
            warnings.warn(f"checkpoint {self.path}: {what}{why}", RuntimeWarning, stacklevel=3)


def read(path: Path, *, lazily: bool = False) -> Saved:
    """What a file holds, tensors on the CPU. Raises all kinds of errors where it is damaged or something else.

    `lazily` leaves tensors in the file, unchecked, until they are looked at.
    """
    if not lazily:
        # torch itself does not look at the checksums
        with zipfile.ZipFile(path) as members:
            if damaged := members.testzip():
                raise ValueError(f"{damaged} is damaged")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=lazily)
    except UnpicklingError as problem:
        raise ValueError("it holds more than plain data") from problem
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise ValueError(f"it is no {FORMAT}")
    return Saved(**content)


def checkpoints(folder: Path) -> Iterator[tuple[Path, Saved | None]]:
    """The files of a folder, each with what it holds (read lazily), None where it cannot be read."""
    for path in sorted(folder.glob("*.pt")):
        try:
            yield path, read(path, lazily=True)
        except Exception:
            yield path, None


def _check_plain(value: object) -> None:
    if isinstance(value, dict):
        for part in (*value.keys(), *value.values()):
            _check_plain(part)
    elif type(value) in (list, tuple):
        for part in value:  # type: ignore[attr-defined]
            _check_plain(part)
    elif not isinstance(value, torch.Tensor) and type(value) not in PLAIN:
        raise TypeError(
            f"a checkpoint holds dicts, lists, tuples, tensors, numbers and texts, got {type(value).__name__}."
        )


def _replace(path: Path, content: State) -> None:
    """Put `content` into a file in one step. Raises OSError or RuntimeError, and then leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*"):
        if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
            left.unlink(missing_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _first_line(problem: Exception) -> str:
    text = (isinstance(problem, OSError) and problem.strerror) or str(problem).strip() or type(problem).__name__
    return text.splitlines()[0]
