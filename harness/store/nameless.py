"""Rows without the names of whoever measured them: a file for others names no computer, no user and no folder.

    machine        its node                                            left out
    a kernel       Linux-6.1.0-adas-build-x86_64-with-glibc2.36        Linux-6.1.0-x86_64-with-glibc2.36
    a path         /home/ada/rules/mine.py:VARIANT                     mine.py:VARIANT
    a home         /home/ada                                           ~
    a server       postgresql://ada@box:5432/bench?sslmode=require     postgresql:///bench
    a GPU          GPU-0f3c5a2e-9d41-4c55-8a53-c1f1d6e2b7a9            GPU-*

Commands, environment variables, facts and reasons are gone through; the texts of artefacts are results and stay as they
are. What is nameless already is left alone.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from attnbench.harness.environment import Run
from attnbench.harness.store.reading import Contents

AnyRun = TypeVar("AnyRun", bound=Run)

# from the root, a home, the folder above, a drive
_START = r"(?:(?:~[\w.-]*|\.\.)?/|[A-Za-z]:[/\\])"
_URL = r"(?P<scheme>\b[A-Za-z][\w+.-]*)://(?P<rest>{inside}*)"
_PATH = rf"(?P<before>^-[A-Za-z]|(?<![\w./\\~*<-]))(?P<path>{_START}{{inside}}*)"
# a path that is a word of its own may hold spaces, and ends where the next one of a list begins
_IN_WORD, _IN_SENTENCE = (
    re.compile(f"{_URL}|{_PATH}".replace("{inside}", inside)) for inside in (rf"(?:(?![:;,\s]+{_START}).)", r"[^\s'\"]")
)
_QUOTED = re.compile(r"(['\"])([^'\"\n]*)\1")
_HOME = re.compile(r"(?:/(?:home|Users)/[^/]+|/root|~[\w.-]*|[A-Za-z]:[/\\]Users[/\\][^/\\]+)[/\\]?([^\w/\\]*)")
_GPU = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}[0-9a-f/-]*")


def nameless(contents: Contents) -> Contents:
    """The same contents as they may leave the computer."""
    attempts = (
        replace(tried, reason=_settled(_sentence, tried.reason), facts=_words(tried.facts))
        for tried in contents.attempts
    )
    return replace(contents, runs=tuple(map(nameless_run, contents.runs)), attempts=tuple(attempts))


def nameless_run(run: AnyRun) -> AnyRun:
    """The same run as it may leave the computer."""
    architecture = str(run.machine.get("architecture", ""))
    machine = {name: fact for name, fact in run.machine.items() if name != "node"}
    return replace(
        run,
        command=_settled(_command, run.command),
        machine=_with_plain_kernel(machine, "os", architecture),
        versions=_with_plain_kernel(run.versions, "platform", architecture),
        environment=_words(run.environment),
    )


def _with_plain_kernel(facts: Mapping[str, Any], name: str, architecture: str) -> dict[str, Any]:
    """`facts` with nothing between the kernel's number and the architecture: there builders put names of their own."""
    system = facts.get(name)
    if not architecture or not isinstance(system, str):
        return dict(facts)
    return {**facts, name: re.sub(rf"^(\w+-[\d.]*\d).*?(?=-{re.escape(architecture)}\b)", r"\1", system)}


def _settled(shorten: Callable[[str], str], text: str) -> str:
    """`text` shortened until nothing changes: what is left of one path may stand beside another."""
    while (shorter := shorten(text)) != text:
        text = shorter
    return text


def _command(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError:
        return _sentence(command)
    shortened = [_word(word) for word in words]
    return command if shortened == words else shlex.join(shortened)


def _words(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _settled(_word, fact) if isinstance(fact, str) else fact for name, fact in facts.items()}


def _word(word: str) -> str:
    return _GPU.sub(r"\1-*", _IN_WORD.sub(_shortened, word))


def _sentence(text: str) -> str:
    quoted = _QUOTED.sub(lambda match: f"{match[1]}{_word(match[2])}{match[1]}", text)
    return _GPU.sub(r"\1-*", _IN_SENTENCE.sub(_shortened, quoted))


def _shortened(match: re.Match[str]) -> str:
    if match["scheme"] is None:
        return f"{match['before']}{_last_part(match['path'])}"
    # an address on the web names nobody, unless a user stands in it
    if match["scheme"] in {"http", "https"} and "@" not in match["rest"]:
        return match[0]
    return f"{match['scheme']}:///{_last_part(match['rest'].partition('?')[0].partition('/')[2])}"


def _last_part(path: str) -> str:
    if home := _HOME.fullmatch(path):
        return f"~{home[1]}"
    parts = [part for part in re.split(r"[/\\]", path) if part]
    return parts[-1] if parts else path
