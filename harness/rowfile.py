"""A file of rows: runs, suites and attempts as compressed text, to be kept, mailed, shipped. Imports no torch.

    {"format":"attnbench rows","version":1}
    {"run":{"id":"20260101-000000-abc123","command":"attnbench run","started_at":"2026-01-01T00:00:00+00:00", ...}}
    {"suite":{"name":"capacity", ...}}
    {"attempt":{"run_id":"20260101-000000-abc123","suite":"capacity","point":{"pairs":20}, ..., "measurements":[...]}}

One JSON text a line (jsonlines.org), in one xz stream (tukaani.org/xz/xz-file-format.txt), whose checksum tells a
damaged or truncated file. The same contents always give the same bytes with one version of liblzma.
"""

import json
import lzma
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from attnbench.harness.destination import replace_file
from attnbench.harness.errors import UserError
from attnbench.harness.rows import Artefact, Identity, Series, Status
from attnbench.harness.spec import Case, Point
from attnbench.harness.store import Contents, RunState, StoredAttempt, StoredMeasurement, StoredRun, SuiteFacts
from attnbench.harness.store.writing import numbers

SUFFIX = ".jsonl.xz"
FORMAT, VERSION = "attnbench rows", 1
_XZ = b"\xfd7zXZ\x00"
# what a text that somebody wrote by hand may raise: a time before the year 1 in UTC, brackets a thousand deep
_WRONG = (TypeError, ValueError, OverflowError, RecursionError)

Value = TypeVar("Value")
Read = Callable[[Any], Any]


def write_rows(contents: Contents, path: Path) -> None:
    """Write `contents` to `path`, whole or not at all. Raises UserError where it cannot be written."""
    text = "".join(f"{line}\n" for line in _lines(contents))
    # preset 9 would not make a smaller file of this size, but takes 0.7 GB
    replace_file(path, lzma.compress(text.encode(), format=lzma.FORMAT_XZ, preset=6 | lzma.PRESET_EXTREME))


def read_rows(path: Path) -> Contents:
    """What `write_rows` wrote. Raises UserError for a file that is missing, damaged, newer, or another program's."""
    try:
        with path.open("rb") as file:
            if file.read(len(_XZ)) != _XZ:
                raise _not_ours(path, "it is not compressed with xz")
        with lzma.open(path, "rt", format=lzma.FORMAT_XZ, encoding="utf-8", newline="\n") as lines:
            return _contents(path, lines)
    except EOFError as error:
        raise UserError(f"{path} is truncated: it ends in the middle. Copy or export it again.") from error
    except lzma.LZMAError as error:
        raise UserError(f"{path} is damaged ({str(error).lower()}). Copy or export it again.") from error
    except UnicodeDecodeError as error:
        raise _not_ours(path, "it holds no text") from error
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}. Name a file of `attnbench export`."
        ) from error


def _lines(contents: Contents) -> Iterator[str]:
    yield _text({"format": FORMAT, "version": VERSION})
    for run in sorted(contents.runs, key=lambda run: (run.started_at, run.id)):
        yield _text({"run": {name: getattr(run, name) for name in _RUN}})
    for suite in sorted(contents.suites, key=lambda suite: suite.name):
        yield _text({"suite": {name: getattr(suite, name) for name in _SUITE}})
    # as they were stored, and by nothing that another database numbers anew
    stored = sorted((tried.stored_at or tried.started_at, _attempt_text(tried)) for tried in contents.attempts)
    yield from (line for _, line in stored)


def _attempt_text(tried: StoredAttempt) -> str:
    flat = {**vars(tried), **vars(tried.case), **vars(tried.identity)}
    # SQLite keeps no sign of a zero: adding one drops it, so that every database gives the same text
    parts = {
        "point": dict(tried.case.point),
        "seconds": tried.seconds + 0.0,
        "measurements": [{**vars(one), "value": one.value + 0.0} for one in tried.measurements],
        "series": [{**vars(one), "x": numbers(one.x), "y": numbers(one.y)} for one in tried.series],
        "artefacts": [vars(one) for one in tried.artefacts],
    }
    return _text({"attempt": {name: parts.get(name, flat[name]) for name in _ATTEMPT}})


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_encoded)


def _encoded(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def _contents(path: Path, lines: Iterable[str]) -> Contents:
    numbered = enumerate(lines, start=1)
    _check_header(path, next(numbered, (1, ""))[1])
    found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    for number, line in numbered:
        try:
            kind, given = _named(_parsed(line))
            found[kind].append(_KINDS[kind](given))
        except _WRONG as error:
            raise UserError(
                f"line {number} of {path} is no run, suite or attempt of format {VERSION}: {error}. Export it again."
            ) from error
    known = {run.id for run in found["run"]}
    for tried in found["attempt"]:
        if tried.run_id not in known:
            raise UserError(f"{path} has an attempt of run {tried.run_id!r}, but not the run. Export it again.")
    ended: dict[str, Counter[Status]] = {name: Counter() for name in known}
    for tried in found["attempt"]:
        ended[tried.run_id][tried.status] += 1
    runs = tuple(replace(run, attempts=dict(ended[run.id])) for run in found["run"])
    return Contents(runs, tuple(found["suite"]), tuple(found["attempt"]))


def _check_header(path: Path, line: str) -> None:
    try:
        header = _parsed(line)
        version = header["version"] if header["format"] == FORMAT else None
    except (KeyError, *_WRONG):
        version = None
    if not isinstance(version, int):
        raise _not_ours(path, "its first line does not say so")
    if version > VERSION:
        raise UserError(
            f"{path} was written by a newer attnbench: format {version}, this one reads up to {VERSION}. "
            "Update with: pip install --upgrade attnbench"
        )


def _parsed(line: str) -> dict[str, Any]:
    """The object that a line holds. Raises ValueError: JSON has no NaN, though Python's module would read it."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number of JSON")

    parsed = json.loads(line, parse_constant=refuse)
    if not isinstance(parsed, dict):
        raise ValueError("it is no JSON object")
    return parsed


def _named(parsed: Mapping[str, Any]) -> tuple[str, Any]:
    """What a line holds, and its values."""
    kind = next(iter(parsed), "")
    if len(parsed) != 1 or kind not in _KINDS:
        raise ValueError(f"one of {', '.join(_KINDS)} was needed, got {', '.join(parsed) or 'nothing'}")
    return kind, parsed[kind]


def _not_ours(path: Path, why: str) -> UserError:
    return UserError(f"{path} is no file of rows: {why}. `attnbench export` writes one.")


def _taken(given: Any, fields: Mapping[str, Read]) -> dict[str, Any]:
    """The values of `given`, each read as its field says. Raises ValueError, which names the field."""
    if not isinstance(given, dict):
        raise ValueError(f"an object was needed, got {given!r:.40}")
    missing, surplus = sorted(fields.keys() - given.keys()), sorted(given.keys() - fields.keys())
    if missing or surplus:
        raise ValueError(
            "; ".join(
                f"{what} {', '.join(names)}"
                for what, names in (("it lacks", missing), ("it has an unknown", surplus))
                if names
            )
        )
    taken = {}
    for name, read in fields.items():
        try:
            taken[name] = read(given[name])
        except _WRONG as error:
            raise ValueError(f"{name}: {error}") from error
    return taken


def _as(kind: type[Value], words: str) -> Callable[[Any], Value]:
    def read(given: Any) -> Value:
        if not isinstance(given, kind) or (isinstance(given, bool) and kind is not bool):
            raise ValueError(f"{words} was needed, got {given!r:.40}")
        return given

    return read


def _words(given: Any) -> str:
    """A text that every database takes: no NUL, no half of a surrogate pair."""
    text = _as(str, "a text")(given)
    if "\0" in text:
        raise ValueError("a text without NUL was needed")
    text.encode("utf-8")
    return text


def _whole(below: int) -> Callable[[Any], int]:
    def read(given: Any) -> int:
        number = _as(int, "a whole number")(given)
        if not 0 <= number < below:
            raise ValueError(f"a whole number from 0 to {below - 1} was needed, got {number}")
        return number

    return read


def _number(given: Any) -> float:
    """A finite number: JSON's 1e999 is none."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) <= sys.float_info.max:
        raise ValueError(f"a finite number was needed, got {given!r:.40}")
    return float(given)


def _number_of_curve(given: Any) -> float:
    """A number that may be NaN or infinite, as `numbers` writes it."""
    return math.nan if given is None else float(given) if given in ("inf", "-inf") else _number(given)


def _moment(given: Any) -> datetime:
    moment = datetime.fromisoformat(_as(str, "a time")(given))
    if moment.tzinfo is None:
        raise ValueError(f"a time with its zone was needed, got {given!r}")
    return moment.astimezone(UTC)


def _moment_or_none(given: Any) -> datetime | None:
    return None if given is None else _moment(given)


def _facts(given: Any) -> dict[str, Any]:
    facts = _as(dict, "an object")(given)
    for name, value in facts.items():
        _words(name)
        if isinstance(value, float):
            _number(value)
        elif not isinstance(value, int):
            _words(value)
    return facts


def _point(given: Any) -> Point:
    return Point(_facts(given))


def _each(read: Callable[[Any], Value]) -> Callable[[Any], tuple[Value, ...]]:
    def read_all(given: Any) -> tuple[Value, ...]:
        return tuple(map(read, _as(list, "a list")(given)))

    return read_all


def _measurement(given: Any) -> StoredMeasurement:
    return StoredMeasurement(**_taken(given, _MEASUREMENT))


def _curve(given: Any) -> Series:
    return Series(**_taken(given, _SERIES))


def _artefact(given: Any) -> Artefact:
    return Artefact(**_taken(given, _ARTEFACT))


def _run(given: Any) -> StoredRun:
    return StoredRun(**_taken(given, _RUN))


def _suite(given: Any) -> SuiteFacts:
    return SuiteFacts(**_taken(given, _SUITE))


def _attempt(given: Any) -> StoredAttempt:
    taken = _taken(given, _ATTEMPT)
    case = Case(**{name: taken.pop(name) for name in Case.__dataclass_fields__})
    identity = Identity(**{name: taken.pop(name) for name in Identity.__dataclass_fields__})
    for kind, names in (
        ("measurements", [one.metric for one in taken["measurements"]]),
        ("series", [one.name for one in taken["series"]]),
        ("artefacts", [one.name for one in taken["artefacts"]]),
    ):
        if len(set(names)) < len(names):
            raise ValueError(f"{kind}: one name stands there twice ({', '.join(sorted(names))})")
    return StoredAttempt(case, identity, **taken)


_KINDS: Mapping[str, Read] = {"run": _run, "suite": _suite, "attempt": _attempt}
_MEASUREMENT: Mapping[str, Read] = {
    "metric": _words,
    "unit": _words,
    "better": _words,
    "value": _number,
    "samples": _each(_number),
}
_SERIES: Mapping[str, Read] = {
    "name": _words,
    "x_name": _words,
    "x": _each(_number_of_curve),
    "y": _each(_number_of_curve),
}
_ARTEFACT: Mapping[str, Read] = {"name": _words, "media_type": _words, "text": _words}
_RUN: Mapping[str, Read] = {
    "id": _words,
    "command": _words,
    "started_at": _moment,
    "ended_at": _moment_or_none,
    "state": RunState,
    "machine": _facts,
    "device": _facts,
    "driver": _words,
    "versions": _facts,
    "commit": _words,
    "is_dirty": _as(bool, "true or false"),
    "environment": _facts,
    "testbed": _words,
}
_SUITE: Mapping[str, Read] = {
    "name": _words,
    "title": _words,
    "question": _words,
    "source": _words,
    "axis": _words,
    "metrics": _each(_words),
}
_ATTEMPT: Mapping[str, Read] = {
    "run_id": _words,
    "suite": _words,
    "variant": _words,
    "form": _words,
    "point": _point,
    "seed": _whole(2**63),
    "scale": _words,
    "device": _words,
    "threads": _whole(2**31),
    "code_hash": _words,
    "data_hash": _words,
    "testbed": _words,
    "status": Status,
    "reason": _words,
    "seconds": _number,
    "started_at": _moment,
    "stored_at": _moment,
    "facts": _facts,
    "measurements": _each(_measurement),
    "series": _each(_curve),
    "artefacts": _each(_artefact),
}
