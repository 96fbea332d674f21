import hashlib
from pathlib import Path

import pytest

from attnbench.harness.data import cache


def test_the_folder_is_the_users_own_unless_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    assert cache.cache_folder() == tmp_path / "attnbench" / "data"
    assert cache.cache_folder(tmp_path) == tmp_path


def test_what_is_written_is_read_back_by_its_hash_only(tmp_path):
    path = tmp_path / "a" / "b.txt"
    cache.write(path, b"content")
    assert cache.read(path, hashlib.sha256(b"content").hexdigest()) == b"content"
    assert cache.read(path, hashlib.sha256(b"other").hexdigest()) is None
    assert cache.read(tmp_path / "absent", hashlib.sha256(b"").hexdigest()) is None


def test_something_that_cannot_be_read_is_there_all_the_same(tmp_path):
    assert cache.is_there(tmp_path)
    assert cache.read(tmp_path, hashlib.sha256(b"").hexdigest()) is None
    assert not cache.is_there(tmp_path / "absent")


def test_writing_replaces_what_was_there(tmp_path):
    cache.write(tmp_path / "a", b"old")
    cache.write(tmp_path / "a", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"new"}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_the_old_file_and_no_half_one(tmp_path, monkeypatch, interruption):
    cache.write(tmp_path / "a", b"old")
    write_bytes = Path.write_bytes

    def half(path, content):
        write_bytes(path, content[: len(content) // 2])
        raise interruption

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(interruption):
        cache.write(tmp_path / "a", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old"}


def test_a_file_appears_under_its_name_only_when_it_is_whole(tmp_path, monkeypatch):
    seen = []
    write_bytes = Path.write_bytes

    def watched(path, content):
        write_bytes(path, content)
        seen.append((tmp_path / "a").exists())

    monkeypatch.setattr(Path, "write_bytes", watched)
    cache.write(tmp_path / "a", b"content")
    assert seen == [False]
    assert (tmp_path / "a").read_bytes() == b"content"


def test_a_file_is_written_piece_by_piece_and_appears_whole(tmp_path):
    with cache.writing(tmp_path / "a" / "b") as file:
        file.write(b"one ")
        assert not (tmp_path / "a" / "b").exists()
        file.write(b"two")
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == {"b": b"one two"}
    assert cache.file_sha256(tmp_path / "a" / "b") == hashlib.sha256(b"one two").hexdigest()
    assert cache.file_sha256(tmp_path / "a") is None


def interrupted_after_half(kind, path):
    if kind == "file":
        with cache.writing(path / "a") as file:
            file.write(b"half")
            raise KeyboardInterrupt
    with cache.replacing(path) as unfinished:
        (unfinished / "a").write_bytes(b"half")
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_interrupted_writing_leaves_the_old_file_and_no_half_one(tmp_path, kind):
    cache.write(tmp_path / "a", b"old")
    with pytest.raises(KeyboardInterrupt):
        interrupted_after_half(kind, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old"}


def test_files_of_a_folder_are_replaced_together_and_others_stay(tmp_path):
    cache.write(tmp_path / "a", b"old")
    cache.write(tmp_path / "other", b"kept")
    with cache.replacing(tmp_path) as unfinished:
        (unfinished / "a").write_bytes(b"new")
        (unfinished / "b").write_bytes(b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"new", "b": b"new", "other": b"kept"}
