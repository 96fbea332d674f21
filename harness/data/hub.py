"""A text of the Hugging Face Hub, with the parts it was published with: loaded once, counted, kept as files of its own.

    load_dataset(repository, configuration, revision)  ->  documents  ->  counts  ->  cache

Nothing can be said beforehand about the bytes of such a text, so the pinned revision stands for it: the hash in the rows is
that of repository, configuration, revision and rule, and what comes is held against the counts that were published. What
is kept is checked by the hash that it was kept with.
"""

import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnbench.harness.data import cache as files
from attnbench.harness.data import encoded, texts
from attnbench.harness.data.catalogue import PARTS, DataSet, HubSource
from attnbench.harness.errors import BadData, DataUnavailable

Report = Callable[[str], None]
Counts = dict[str, int]

RECORD = "text.json"


def stored(data: DataSet, source: HubSource, folder: Path) -> texts.PartedText | None:
    """The text that is kept in `folder`; None unless all of it is there, whole, and from this source."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
        kept = record["sha256"], [record["parts"][part]["sha256"] for part in PARTS]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    train, validation, test = (folder / f"{part}.txt" for part in PARTS)
    if kept != (source.sha256, [files.file_sha256(path) for path in (train, validation, test)]):
        return None
    parts = texts.StoredDocuments(train), texts.StoredDocuments(validation), texts.StoredDocuments(test)
    return texts.PartedText(data.name, parts, source.sha256)


def fetched(data: DataSet, source: HubSource, folder: Path, *, offline: bool, report: Report) -> texts.PartedText:
    """The text, kept in `folder` from now on. `offline` takes it from Hugging Face's own cache or not at all.

    Raises DataUnavailable where it can not be had or not be written, BadData where what came is not what was published.
    """
    if not offline:
        report(
            f"{data.name}: loading {source.repository} ({source.configuration}) with Hugging Face datasets, "
            f"{source.download_bytes / 1e6:.1f} MB"
        )
    rows = _rows(data, source, folder, offline)
    try:
        with files.replacing(folder) as unfinished:
            parts: dict[str, dict[str, object]] = {}
            found: Counts = {}
            for part in PARTS:
                path = unfinished / f"{part}.txt"
                counts = _write(path, data.clean(rows[part]))
                found |= {f"{part} words": counts["words"], f"{part} pairs": counts["lines"]}
                if part == "train":
                    found[_VOCABULARY] = counts["vocabulary"]
                parts[part] = {"sha256": files.file_sha256(path), **counts}
            _check(data, source, found)
            (unfinished / RECORD).write_text(json.dumps(_record(data, source, parts), indent=2) + "\n")
    except OSError as error:
        raise DataUnavailable(
            f"'{data.name}' could not be written to {folder} ({error.strerror or error}). Free some space there, or set "
            "XDG_CACHE_HOME to a folder that can be written."
        ) from error
    text = stored(data, source, folder)
    if text is None:
        raise BadData(f"'{data.name}' was written to {folder}, and another text lies there. Run the command again.")
    return text


def _rows(data: DataSet, source: HubSource, folder: Path, offline: bool) -> Mapping[str, Iterable[Any]]:
    """The rows of each part. Raises DataUnavailable, BadData."""
    with_a_network = f"Run `attnbench data fetch {data.name}` once with a network"
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise DataUnavailable(
            f"'{data.name}' is not in the cache ({folder}), and is loaded with Hugging Face datasets, which is not "
            f"installed ({error}). Run `pip install 'attnbench[hub]'`, then `attnbench data fetch {data.name}`."
        ) from error
    try:
        with _quietly(datasets, offline):
            builder = datasets.load_dataset_builder(
                source.repository, source.configuration, revision=source.revision or None
            )
            if source.revision and builder.hash != source.revision:
                raise DataUnavailable(
                    f"'{data.name}' needs revision {source.revision} of {source.repository}, and could only be found as "
                    f"{builder.hash}. {with_a_network}."
                )
            builder.download_and_prepare()
            loaded = builder.as_dataset()
    except DataUnavailable:
        raise
    # it raises what its libraries raise, of no common kind
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        if offline:
            raise DataUnavailable(
                f"'{data.name}' is not in the cache ({folder}), not in that of Hugging Face either ({said}), and nothing "
                f"may be downloaded. {with_a_network}."
            ) from error
        raise DataUnavailable(
            f"'{data.name}' could not be loaded from the Hugging Face Hub ({said}). {with_a_network}; no other command "
            "needs one afterwards."
        ) from error
    names = " and ".join(f"'{column}'" for column in source.columns)
    wanted = f"a column {names}" if len(source.columns) == 1 else f"columns {names}"
    for part in PARTS:
        if part not in loaded or not {*source.columns} <= {*loaded[part].column_names}:
            came = ", ".join(f"{name} ({', '.join(rows.column_names)})" for name, rows in sorted(loaded.items()))
            raise BadData(
                f"'{data.name}': {source.repository} should have {wanted} in each of {', '.join(PARTS)}, "
                f"and has {came}. Nothing was kept."
            )
    return {part: _Rows(loaded[part], source.columns) for part in PARTS}


class _Rows:
    """A column of a part, or several as mappings, a thousand rows at a time in memory."""

    def __init__(self, part: Any, columns: Sequence[str]) -> None:
        self._part = part
        self._columns = columns

    def __iter__(self) -> Iterator[Any]:
        for batch in self._part.iter(batch_size=1000):
            if len(self._columns) == 1:
                yield from batch[self._columns[0]]
            else:
                for row in zip(*(batch[name] for name in self._columns), strict=True):
                    yield dict(zip(self._columns, row, strict=True))


@contextlib.contextmanager
def _quietly(datasets: Any, offline: bool) -> Iterator[None]:
    """No advice, no progress bars where no one looks; with `offline` no try at a network, which would take half a minute."""
    constants = importlib.import_module("huggingface_hub").constants
    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    verbosity, has_bars = datasets.logging.get_verbosity(), datasets.are_progress_bars_disabled() is False
    try:
        if offline:
            datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
        datasets.logging.set_verbosity_error()
        if not sys.stderr.isatty():
            datasets.disable_progress_bars()
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
        datasets.logging.set_verbosity(verbosity)
        if has_bars:
            datasets.enable_progress_bars()


def _write(path: Path, documents: Iterable[texts.Document]) -> Counts:
    """Writes a part and counts it: documents, lines, words with one a line, and different words with the end of a line."""
    counts = {"documents": 0, "lines": 0, "words": 0}
    vocabulary = set()
    with path.open("wb") as file:
        for document in documents:
            file.write((texts.BETWEEN_DOCUMENTS.encode() if counts["documents"] else b"") + texts.to_bytes((document,)))
            counts["documents"] += 1
            counts["lines"] += len(document)
            counts["words"] += encoded.words(document)
            for line in document:
                vocabulary.update(line.split())
    return {**counts, "vocabulary": len(vocabulary) + 1}


def _check(data: DataSet, source: HubSource, found: Counts) -> None:
    """Raises BadData unless the counts are the published ones."""
    published = {
        **{f"{part} words": count for part, count in zip(PARTS, source.words or (), strict=source.words is not None)},
        **{f"{part} pairs": count for part, count in zip(PARTS, source.lines or (), strict=source.lines is not None)},
        **({} if source.vocabulary is None else {_VOCABULARY: source.vocabulary}),
    }
    if wrong := [name for name in published if published[name] != found[name]]:
        said = "; ".join(f"{name} {published[name]:,}, and has {found[name]:,}" for name in wrong)
        with_ends = "with one <eos> a line, " if source.words else ""
        raise BadData(
            f"'{data.name}': {with_ends}{source.repository} should have {said}. Nothing was kept. Another "
            f"revision than {source.revision or 'the recorded one'}, or a damaged copy in Hugging Face's cache, has other "
            "counts: remove it there, and fetch again."
        )


_VOCABULARY = "different training words"


def _record(data: DataSet, source: HubSource, parts: Mapping[str, Mapping[str, object]]) -> Mapping[str, object]:
    """What the text was made of."""
    return {
        "name": data.name,
        "licence": data.licence,
        "sha256": source.sha256,
        "source": {
            "repository": source.repository,
            "configuration": source.configuration,
            "revision": source.revision,
        },
        "parts": parts,
    }
