import re
from dataclasses import replace

import pytest

from attnbench.harness.data.catalogue import DATA_SETS, data_set
from attnbench.harness.errors import UnknownData


def test_a_data_set_is_found_by_its_name():
    assert [data_set(name).name for name in DATA_SETS] == list(DATA_SETS)
    assert {"python-manual", "web-bible", "wiki-mini", "wikitext-2", "wikitext-103"} <= set(DATA_SETS)


def test_an_unknown_data_set_is_refused_with_the_nearest_name():
    known = ", ".join(sorted(DATA_SETS))
    with pytest.raises(UnknownData) as refused:
        data_set("web-bibel")
    assert str(refused.value) == f"no data set 'web-bibel'. Known: {known}. Did you mean 'web-bible'?"


@pytest.mark.parametrize("data", DATA_SETS.values(), ids=lambda data: data.name)
def test_an_entry_says_what_it_is_and_under_which_licence(data):
    assert data.what
    assert data.licence


@pytest.mark.parametrize("data", [data for data in DATA_SETS.values() if data.sources], ids=lambda data: data.name)
def test_a_downloaded_data_set_pins_version_size_and_hashes(data):
    assert data.words > 0
    assert re.fullmatch("[0-9a-f]{64}", data.sha256)
    for source in data.sources:
        assert re.fullmatch("[0-9a-f]{64}", source.archive_sha256)
        assert source.version in source.archive
        assert source.archive.endswith(".whl")
        assert source.member
    assert data.download_bytes == sum(source.archive_bytes for source in data.sources) > 0


def test_a_data_set_without_sources_downloads_nothing():
    assert DATA_SETS["python-manual"].download_bytes == 0


@pytest.mark.parametrize("data", [data for data in DATA_SETS.values() if data.hub], ids=lambda data: data.name)
def test_a_data_set_of_the_hub_pins_revision_size_and_counts(data):
    # one whose revisions nobody has written down says so
    assert re.fullmatch("[0-9a-f]{40}", data.hub.revision) or "the newest revision" in data.what
    assert data.download_bytes == data.hub.download_bytes > 0
    assert data.sha256 == ""
    if data.pairs:
        assert len(data.hub.lines) == 3
    else:
        # what it is counted in elsewhere leaves the ends of lines out
        assert 0 < data.words < sum(data.hub.words)


def test_a_text_in_two_languages_says_how_much_is_held_out_unless_it_has_parts():
    pairs = {name: data for name, data in DATA_SETS.items() if data.pairs}
    assert set(pairs) == {"number-words", "home-assistant-en-de", "bible-en-de", "multi30k-en-de", "wmt14-en-de"}
    assert all((data.held_out is None) == (data.hub is not None) for data in pairs.values())


def test_the_hash_of_a_data_set_of_the_hub_hangs_on_where_it_is_from_and_not_on_what_is_said_of_it():
    source = DATA_SETS["wikitext-103"].hub
    same = replace(source, words=(1, 1, 1), vocabulary=1, download_bytes=1)
    others = [replace(source, **{name: "other"}) for name in ("repository", "configuration", "revision", "columns")]
    assert same.sha256 == source.sha256
    assert len({source.sha256, *(other.sha256 for other in others)}) == 5


def test_where_a_data_set_is_from_can_be_read():
    assert DATA_SETS["python-manual"].origin == "this Python"
    assert DATA_SETS["wiki-mini"].origin == "PyPI: gensim 4.4.0"
    assert DATA_SETS["wikitext-103"].origin == "Hugging Face Hub: Salesforce/wikitext, wikitext-103-v1 (extra hub)"


def test_the_changed_bible_text_is_called_a_derivative():
    assert "derived from the World English Bible" in DATA_SETS["web-bible"].what
