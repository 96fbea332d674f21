"""A file of rows that cannot be read is told, with the line that is not as it should be."""

import json
import lzma
import re
from dataclasses import replace

import pytest
from exported import CONTENTS, RUN, attempt, refused, unpacked, xz

from attnbench.harness.errors import UserError
from attnbench.harness.rowfile import read_rows, write_rows


@pytest.fixture
def lines(tmp_path):
    write_rows(replace(CONTENTS, attempts=CONTENTS.attempts[:1]), tmp_path / "good.jsonl.xz")
    return unpacked(tmp_path / "good.jsonl.xz")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"my notes", r"is no file of rows: it is not compressed with xz\. `attnbench export` writes one\."),
        (b"", r"is no file of rows: it is not compressed with xz\. .*"),
        (lzma.compress(b"{}\n"), r"is no file of rows: its first line does not say so\. .*"),
        (lzma.compress(b"[1]\n"), r"is no file of rows: its first line does not say so\. .*"),
        (lzma.compress(b""), r"is no file of rows: its first line does not say so\. .*"),
        (lzma.compress(b"\xff\xfe\n"), r"is no file of rows: it holds no text\. .*"),
        (lzma.compress(b'{"format":"attnbench rows","version":2}\n'),
         r"was written by a newer attnbench: format 2, this one reads up to 1\. Update with: pip install --upgrade attnbench"),
    ],
    ids=["text", "empty", "json", "list", "nothing packed", "bytes packed", "newer"],
)  # fmt: skip
def test_a_file_that_is_not_of_rows_is_told_and_no_database_is_made(attnbench, tmp_path, content, told):
    (tmp_path / "rows.jsonl.xz").write_bytes(content)
    refused(attnbench("import", "rows.jsonl.xz"), rf"UserError: rows\.jsonl\.xz {told}")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl.xz"]


def test_a_file_that_is_missing_or_a_folder_is_told(attnbench, tmp_path):
    told = r"cannot be read: {}\. Name a file of `attnbench export`\."
    refused(attnbench("import", "gone.xz"), rf"UserError: gone\.xz {told.format('No such file or directory')}")
    (tmp_path / "folder").mkdir()
    refused(attnbench("import", "folder"), rf"UserError: folder {told.format('Is a directory')}")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_or_damaged_file_leaves_the_database_as_it_was(attnbench, tmp_path, share):
    write_rows(CONTENTS, tmp_path / "good.jsonl.xz")
    content = (tmp_path / "good.jsonl.xz").read_bytes()
    cut = int(share * len(content))
    (tmp_path / "short.jsonl.xz").write_bytes(content[:cut])
    (tmp_path / "damaged.jsonl.xz").write_bytes(content[:cut] + bytes([content[cut] ^ 1]) + content[cut + 1 :])
    assert attnbench("import", "good.jsonl.xz")[0] == 0
    before = (tmp_path / "attnbench.db").read_bytes()
    # the good file beside it adds nothing either: all are read before the first is stored
    other = replace(CONTENTS, attempts=(attempt(7),))
    write_rows(other, tmp_path / "other.jsonl.xz")
    told = (
        r"UserError: short\.jsonl\.xz is (truncated: it ends in the middle|damaged \(.*\))\. Copy or export it again\."
    )
    refused(attnbench("import", "other.jsonl.xz", "short.jsonl.xz"), told)
    told = r"UserError: damaged\.jsonl\.xz is (truncated: it ends in the middle|damaged \(.*\))\. Copy or export it again\."
    refused(attnbench("import", "damaged.jsonl.xz"), told)
    assert (tmp_path / "attnbench.db").read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"seed":0', '"seed":-1', r"seed: a whole number from 0 to \d+ was needed, got -1"),
        ('"seed":0', '"seed":true', r"seed: a whole number was needed, got True"),
        ('"seed":0,', "", r"it lacks seed"),
        ('"seed":0,', '"seed":0,"age":3,', r"it has an unknown age"),
        ('"status":"ok"', '"status":"fine"', r"status: 'fine' is not a valid Status"),
        ('"seconds":1.5', '"seconds":NaN', r"NaN is no number of JSON"),
        ('"value":0.25', '"value":1e999', r"measurements: value: a finite number was needed, got inf"),
        ('"value":0.25', '"value":"0.25"', r"measurements: value: a finite number was needed, got '0\.25'"),
        ('"point":{"pairs":20}', '"point":{"pairs":[20]}', r"point: a text was needed, got \[20\]"),
        ('"point":{"pairs":20}', '"point":20', r"point: an object was needed, got 20"),
        ('+00:00","facts"', '","facts"', r"stored_at: a time with its zone was needed, got '2026.*'"),
        ('"variant":"delta"', r'"variant":"\u0000"', r"variant: a text without NUL was needed"),
        ('"variant":"delta"', r'"variant":"\ud800"', r"variant: .*surrogates not allowed"),
        ('{"attempt":', '{"atempt":', r"one of run, suite, attempt was needed, got atempt"),
        ('{"attempt":', '{"attempt":3,"run":', r"one of run, suite, attempt was needed, got attempt, run"),
        ('"value":0.25', f'"value":1{"0" * 400}', r"measurements: value: a finite number was needed, got 10+"),
        ('"point":{"pairs":20}', '"point":{"pairs":1e999}', r"point: a finite number was needed, got inf"),
        ('"started_at":"2026-01-01T00:00:00+00:00"', '"started_at":"0001-01-01T00:00:00+14:00"', r"started_at: date value out of range"),
        ('"samples":[0.25,0.5]', f'"samples":{"[" * 100_000}', r"maximum recursion depth exceeded.*"),
        ('{"attempt":', '{"attempt"', r"Expecting ':' delimiter.*"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_as_it_should_be_is_told_with_its_number(tmp_path, lines, old, new, told):
    assert lines[-1].count(old) == 1
    path = xz(tmp_path / "rows.jsonl.xz", *lines[:-1], lines[-1].replace(old, new))
    with pytest.raises(UserError) as caught:
        read_rows(path)
    message = rf"line 4 of {re.escape(str(path))} is no run, suite or attempt of format 1: {told}\. Export it again\."
    assert re.fullmatch(message, str(caught.value)), caught.value


def test_one_name_twice_in_an_attempt_is_told(tmp_path, lines):
    line = json.loads(lines[-1])
    line["attempt"]["measurements"] *= 2
    path = xz(tmp_path / "rows.jsonl.xz", *lines[:-1], json.dumps(line))
    with pytest.raises(
        UserError, match=r"measurements: one name stands there twice \(retrieval_loss, retrieval_loss\)"
    ):
        read_rows(path)


def test_two_files_in_one_are_told(tmp_path, lines):
    path = xz(tmp_path / "rows.jsonl.xz", *lines, *lines)
    with pytest.raises(UserError, match=r"line 5 of .* run, suite, attempt was needed, got format, version\. Export"):
        read_rows(path)


def test_an_attempt_whose_run_is_not_in_the_file_is_told(tmp_path, lines):
    path = xz(tmp_path / "rows.jsonl.xz", lines[0], *lines[2:])
    with pytest.raises(UserError, match=rf"has an attempt of run '{RUN.id}', but not the run\. Export it again\."):
        read_rows(path)
