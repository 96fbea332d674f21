import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.harness.data.encoded import encoded, words

documents = st.lists(st.lists(st.sampled_from(["", "a", "ü b", "a a a"]), min_size=1).map(tuple)).map(tuple)


class Lengths:
    """Says how long each word is, and ends a line with a zero."""

    def __init__(self):
        self.seen = 0

    def encode(self, document):
        self.seen += 1
        return [[*map(len, line.split()), 0] for line in document]


def same(one, other):
    assert one.stream.tolist() == other.stream.tolist()
    assert (one.ends, one.words, one.utf8_bytes) == (other.ends, other.words, other.utf8_bytes)


def test_documents_are_counted_and_encoded_one_after_the_other(tmp_path):
    made = encoded((("ü hen", ""), ("cock",)), Lengths(), tmp_path / "a")
    assert made.stream.tolist() == [1, 3, 0, 0, 4, 0]
    # two words, an end, an end; a word, an end. "ü" has two bytes, and so has "\n" with the empty line's
    assert (made.ends, made.words, made.utf8_bytes) == ((4, 6), 6, len("ü hen\n\ncock\n".encode()))
    assert [words(document) for document in (("ü hen", ""), ("cock",))] == [4, 2]


@given(documents)
def test_what_is_kept_comes_back_without_being_encoded_again(tmp_path_factory, made):
    path = tmp_path_factory.mktemp("encoded") / "folder" / "a"
    tokeniser = Lengths()
    first, second = (encoded(made, tokeniser, path) for _ in range(2))
    assert tokeniser.seen == len(made)
    same(first, second)
    assert second.stream.dtype == np.int32
    assert not second.stream.flags.writeable


def test_what_is_kept_is_mapped_into_memory_and_aligned(tmp_path):
    for _ in range(2):
        made = encoded((("a b",),), Lengths(), tmp_path / "a")
    base = made.stream
    while isinstance(base, np.ndarray):
        assert base.flags.aligned
        base = base.base
    assert isinstance(base, mmap.mmap)
    assert (tmp_path / "a").stat().st_size == len((tmp_path / "a").read_bytes()) == 3 * 4 + made_header(tmp_path / "a")


def made_header(path):
    """Where the tokens begin: after the second line."""
    first, second, _ = path.read_bytes().split(b"\n", 2)
    start = len(first) + len(second) + 2
    assert start % 64 == 0
    return start


@pytest.mark.parametrize("place", [0, 80, -1], ids=["hash", "counts", "tokens"])
def test_a_damaged_file_is_encoded_again(tmp_path, place):
    made = encoded((("a b",),), Lengths(), tmp_path / "a")
    content = bytearray((tmp_path / "a").read_bytes())
    content[place] ^= 1
    (tmp_path / "a").write_bytes(content)
    tokeniser = Lengths()
    same(encoded((("a b",),), tokeniser, tmp_path / "a"), made)
    assert tokeniser.seen == 1


@pytest.mark.parametrize("length", [0, 30, 100])
def test_half_a_file_is_encoded_again(tmp_path, length):
    made = encoded((("a b",),), Lengths(), tmp_path / "a")
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:length])
    same(encoded((("a b",),), Lengths(), tmp_path / "a"), made)


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path):
    (tmp_path / "file").write_text("")
    made = encoded((("a b",),), Lengths(), tmp_path / "file" / "a")
    assert made.stream.tolist() == [1, 1, 0]
    with pytest.raises(ValueError, match="read-only"):
        made.stream[0] = 0
