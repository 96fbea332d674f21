import json
import shutil
import sys
from dataclasses import replace

import pytest

from attnbench.harness.data import hub
from attnbench.harness.data.catalogue import DATA_SETS, DataSet, HubSource
from attnbench.harness.data.corpus import corpus
from attnbench.harness.data.fetch import cached_path, data_hash, fetch, is_cached, load
from attnbench.harness.data.wikipedia import wikitext
from attnbench.harness.errors import BadData, DataUnavailable

# Made up, in the layout of WikiText: two articles to train on, and rows with the space and line break that it has.
ROWS = {
    "train": ["", " = Hen = \n", "", " The hen lays <unk> . \n", "", " = Cock = \n", "", " The cock crows . \n"],
    "validation": ["", " = Duck = \n", "", " The duck <unk> . \n"],
    "test": ["", " = Goose = \n", "", " The <unk> crows . \n", ""],
}
# train: 3 + 5 + 3 + 4 words in eight lines; validation: 3 + 4 in four; test: 3 + 4 in five
WORDS = (23, 11, 12)
# = Hen The hen lays <unk> . Cock cock crows, and <eos>
VOCABULARY = 11
CARD = """\
---
configs:
- config_name: hens-v1
  data_files:
  - split: train
    path: hens-v1/train-*
  - split: validation
    path: hens-v1/validation-*
  - split: test
    path: hens-v1/test-*
---
"""


@pytest.fixture(scope="module")
def datasets():
    """The library, which takes the folders of its caches from the environment when it is first imported."""
    return pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def its_caches(datasets, tmp_path, monkeypatch):
    """Nothing is left outside `tmp_path`, and nothing is asked of a network."""
    import huggingface_hub

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "huggingface" / "datasets")
    monkeypatch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", tmp_path / "huggingface" / "downloads")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "huggingface" / "hub"))
    for constants in (datasets.config, huggingface_hub.constants):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def put(datasets, folder, rows=ROWS, column="text"):
    """A data set in the format of the Hub: parquet files and a card that says which part each is."""
    (folder / "hens-v1").mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    bars = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    for part, lines in rows.items():
        datasets.Dataset.from_dict({column: lines}).to_parquet(folder / "hens-v1" / f"{part}-00000-of-00001.parquet")
    if not bars:
        datasets.enable_progress_bars()


@pytest.fixture
def hens(datasets, tmp_path, monkeypatch):
    """A data set of the catalogue whose repository is a folder here."""
    put(datasets, tmp_path / "hens")
    source = HubSource(str(tmp_path / "hens"), "hens-v1", "", 9_840_000, WORDS, VOCABULARY)
    data = DataSet("hens", "made up", "none", wikitext, hub=source, words=29)
    monkeypatch.setitem(DATA_SETS, "hens", data)
    return data


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def silent(message):
    pass


def refusal(kind, cache, **options):
    """What `fetch` says when it raises `kind`; no text may be left in the cache."""
    with pytest.raises(kind) as refused:
        fetch("hens", cache=cache, report=silent, **options)
    assert not is_cached("hens", cache)
    assert not (cache / "hens").exists() or list((cache / "hens").iterdir()) == []
    return str(refused.value)


def changed(monkeypatch, hens, **changes):
    """The data set with another source."""
    monkeypatch.setitem(DATA_SETS, "hens", replace(hens, hub=replace(hens.hub, **changes)))


def test_a_fetched_text_lies_in_the_cache_in_its_parts_beside_what_it_was_made_of(hens, cache):
    assert not is_cached("hens", cache)
    folder = fetch("hens", cache=cache, report=silent)
    assert is_cached("hens", cache)
    assert folder == cached_path("hens", cache) == cache / "hens"
    assert sorted(path.name for path in folder.iterdir()) == ["test.txt", "text.json", "train.txt", "validation.txt"]
    record = json.loads((folder / "text.json").read_text())
    assert record["sha256"] == data_hash("hens") == hens.hub.sha256
    assert record["source"] == {"repository": hens.hub.repository, "configuration": "hens-v1", "revision": ""}
    counts = {name: record["parts"]["train"][name] for name in ("documents", "lines", "words", "vocabulary")}
    assert counts == {"documents": 2, "lines": 8, "words": 23, "vocabulary": 11}


def test_every_row_of_every_part_is_a_line_and_every_title_begins_a_document(hens, cache):
    train, validation, test = map(tuple, load("hens", cache, report=silent).parts)
    assert train == (("", "= Hen =", "", "The hen lays <unk> .", ""), ("= Cock =", "", "The cock crows ."))
    assert validation == (("", "= Duck =", "", "The duck <unk> ."),)
    assert test == (("", "= Goose =", "", "The <unk> crows .", ""),)


def test_a_text_of_the_hub_becomes_a_corpus_of_words(hens, cache):
    made = corpus(load("hens", cache, report=silent), vocabulary=VOCABULARY, tokeniser="words", cache=cache)
    # <eos> 8, = 4, The and . 2 each; all others once, <unk> before the words that are seen first
    assert made.decode(range(1, VOCABULARY)) == "= The . <unk> Hen hen lays Cock cock crows"
    assert made.end_of_line == 0
    assert made.decode(made.validation.stream) == "\n= <unk> =\n\nThe <unk> <unk> .\n"
    assert (made.train.words, made.validation.words, made.test.words) == (made.train.tokens, *WORDS[1:]) == WORDS


def test_the_size_is_said_before_the_download(hens, cache):
    said = []
    fetch("hens", cache=cache, report=said.append)
    assert said == [f"hens: loading {hens.hub.repository} (hens-v1) with Hugging Face datasets, 9.8 MB"]


def test_a_cached_text_is_read_without_the_library_and_offline(hens, cache, monkeypatch):
    fetched = load("hens", cache, report=silent)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert load("hens", cache, offline=True) == load("hens", cache) == fetched
    assert fetch("hens", cache=cache, offline=True) == cache / "hens"


@pytest.mark.parametrize("file", ["train.txt", "text.json"])
def test_a_damaged_part_is_said_and_fetched_again(hens, cache, file):
    folder = fetch("hens", cache=cache, report=silent)
    (folder / file).write_text("damaged")
    assert not is_cached("hens", cache)
    said = []
    load("hens", cache, report=said.append)
    assert said[0] == f"hens: what lies in {folder} is damaged or of another revision, so it is fetched again"
    assert is_cached("hens", cache)


def test_a_text_of_another_revision_in_the_cache_is_not_taken(hens, cache, monkeypatch):
    fetch("hens", cache=cache, report=silent)
    changed(monkeypatch, hens, configuration="hens-v2")
    assert not is_cached("hens", cache)


@pytest.mark.parametrize(
    ("published", "said"),
    [
        ({"words": (24, 11, 12)}, "train words 24, and has 23"),
        ({"words": (23, 1_011, 13)}, "validation words 1,011, and has 11; test words 13, and has 12"),
        ({"vocabulary": 12}, "different training words 12, and has 11"),
    ],
    ids=["train", "held-out", "vocabulary"],
)
def test_other_counts_than_the_published_ones_are_refused_with_both(hens, cache, monkeypatch, published, said):
    changed(monkeypatch, hens, **published)
    assert refusal(BadData, cache) == (
        f"'hens': with one <eos> a line, {hens.hub.repository} should have {said}. Nothing was kept. Another revision than "
        "the recorded one, or a damaged copy in Hugging Face's cache, has other counts: remove it there, and fetch again."
    )


@pytest.mark.parametrize(
    ("rows", "column", "came"),
    [
        (ROWS, "line", "test (line), train (line), validation (line)"),
        ({part: ROWS[part] for part in ("train", "test")}, "text", "test (text), train (text)"),
    ],
    ids=["column", "part"],
)
def test_rows_of_another_layout_are_refused(datasets, hens, cache, monkeypatch, tmp_path, rows, column, came):
    put(datasets, tmp_path / "other", rows, column)
    if len(rows) < 3:
        card = CARD.replace("  - split: validation\n    path: hens-v1/validation-*\n", "")
        (tmp_path / "other" / "README.md").write_text(card)
    changed(monkeypatch, hens, repository=str(tmp_path / "other"))
    assert refusal(BadData, cache) == (
        f"'hens': {tmp_path / 'other'} should have a column 'text' in each of train, validation, test, and has {came}. "
        "Nothing was kept."
    )


def test_without_the_library_the_error_says_what_to_install(hens, cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    for offline in (False, True):
        assert refusal(DataUnavailable, cache, offline=offline) == (
            f"'hens' is not in the cache ({cache / 'hens'}), and is loaded with Hugging Face datasets, which is not "
            "installed (import of datasets halted; None in sys.modules). Run `pip install 'attnbench[hub]'`, then "
            "`attnbench data fetch hens`."
        )


def on_the_hub(monkeypatch, hens, **changes):
    """The data set from a repository that nothing here can reach."""
    changed(monkeypatch, hens, **{"repository": "made-up/hens", "revision": "1" * 40, **changes})


def test_without_a_network_the_error_says_so_and_names_the_command_to_run(hens, cache, monkeypatch):
    on_the_hub(monkeypatch, hens)
    assert refusal(DataUnavailable, cache) == (
        "'hens' could not be loaded from the Hugging Face Hub (ConnectionError: Couldn't reach 'made-up/hens' on the Hub "
        "(OfflineModeIsEnabled)). Run `attnbench data fetch hens` once with a network; no other command needs one "
        "afterwards."
    )


def test_offline_the_network_is_not_tried_and_the_setting_is_put_back(hens, cache, monkeypatch, datasets):
    import huggingface_hub

    on_the_hub(monkeypatch, hens)
    both = datasets.config, huggingface_hub.constants
    for constants in both:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # a try would be a request
    monkeypatch.setattr("socket.socket.connect", None)
    monkeypatch.setattr("socket.getaddrinfo", None)
    assert refusal(DataUnavailable, cache, offline=True) == (
        f"'hens' is not in the cache ({cache / 'hens'}), not in that of Hugging Face either (ConnectionError: Couldn't "
        "reach 'made-up/hens' on the Hub (OfflineModeIsEnabled)), and nothing may be downloaded. Run "
        "`attnbench data fetch hens` once with a network."
    )
    assert [constants.HF_HUB_OFFLINE for constants in both] == [False, False]


def in_their_cache(datasets, hens, revision):
    """Puts the rows into Hugging Face's own cache as if they had come from the Hub."""
    builder = datasets.load_dataset_builder(hens.hub.repository, "hens-v1")
    builder.download_and_prepare()
    there = datasets.config.HF_DATASETS_CACHE / "made-up___hens" / "hens-v1" / "0.0.0" / revision
    shutil.copytree(builder.cache_dir, there)


def test_offline_a_copy_in_the_cache_of_hugging_face_is_taken(datasets, hens, cache, monkeypatch):
    in_their_cache(datasets, hens, "1" * 40)
    on_the_hub(monkeypatch, hens)
    said = []
    text = load("hens", cache, offline=True, report=said.append)
    assert [len(tuple(part)) for part in text.parts] == [2, 1, 1]
    assert said == []


def test_a_copy_of_another_revision_in_the_cache_of_hugging_face_is_not_taken(datasets, hens, cache, monkeypatch):
    in_their_cache(datasets, hens, "2" * 40)
    on_the_hub(monkeypatch, hens)
    assert refusal(DataUnavailable, cache, offline=True) == (
        f"'hens' needs revision {'1' * 40} of made-up/hens, and could only be found as {'2' * 40}. Run "
        "`attnbench data fetch hens` once with a network."
    )


def test_a_folder_here_that_is_called_as_the_repository_is_not_taken_for_it(
    datasets, hens, cache, monkeypatch, tmp_path
):
    put(datasets, tmp_path / "made-up" / "hens")
    monkeypatch.chdir(tmp_path)
    on_the_hub(monkeypatch, hens)
    assert "'hens' needs revision" in refusal(DataUnavailable, cache)


def test_a_configuration_that_there_is_not_is_an_error_that_says_which_there_are(hens, cache, monkeypatch):
    changed(monkeypatch, hens, configuration="hens-v2")
    assert "(ValueError: BuilderConfig 'hens-v2' not found. Available: ['hens-v1'])" in refusal(DataUnavailable, cache)


def test_a_cache_that_cannot_be_written_is_an_error_that_says_where_and_why(hens, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataUnavailable) as refused:
        fetch("hens", cache=tmp_path / "file", report=silent)
    assert str(refused.value) == (
        f"'hens' could not be written to {tmp_path / 'file' / 'hens'} (Not a directory). Free some space there, or set "
        "XDG_CACHE_HOME to a folder that can be written."
    )


def test_an_interrupted_fetch_leaves_nothing_behind(hens, cache, monkeypatch):
    write = hub._write

    def interrupted(path, documents):
        if path.name == "test.txt":
            raise KeyboardInterrupt
        return write(path, documents)

    monkeypatch.setattr(hub, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch("hens", cache=cache, report=silent)
    assert list((cache / "hens").iterdir()) == []


def test_nothing_is_printed(hens, cache, capfd):
    fetch("hens", cache=cache, report=silent)
    assert capfd.readouterr() == ("", "")
