"""Templates made into HTML text, with a policy that lets nothing run or load but what attnbench wrote into the file."""

import base64
import hashlib
import re
import shlex
from functools import cache
from importlib import resources
from typing import Any

from attnbench.reports.measured import is_shipped
from attnbench.reports.numbers import seconds_written
from attnbench.reports.palette import MARKERS
from attnbench.reports.tables import metric_words
from attnbench.reports.verdict_board import because


def render(template: str, **given: Any) -> str:
    """The text of a template in `templates/`, everything given escaped where it stands. Raises for what is not given."""
    from markupsafe import Markup

    style, script = _text("page.css"), _text("page.js")
    return (
        _environment()
        .get_template(template)
        .render(
            **given,
            style=Markup(style),
            script=Markup(script),
            policy=policy(style, script),
            markers=MARKERS,
            symbols={marker: f"symbol-{number}" for number, marker in enumerate(MARKERS)},
        )
    )


def policy(style: str, script: str) -> str:
    """The content security policy of a page with this style sheet and this script, and no other.

    Style attributes are allowed: the figures have them, and they can load nothing under this policy.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src-elem '{_digest(style)}'",
            "style-src-attr 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _text(name: str) -> str:
    return resources.files("attnbench.reports").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("attnbench.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        words=metric_words,
        duration=seconds_written,
        moment=lambda when: f"{when:%Y-%m-%d %H:%M} UTC",
        quoted=shlex.quote,
        breakable=_breakable,
        because=because,
        slug=slug,
    )
    environment.tests["shipped"] = is_shipped
    return environment


def _breakable(name: str) -> Any:
    """A variant's name that a narrow column may break after a plus or hyphen."""
    from markupsafe import Markup, escape

    return Markup("").join(
        Markup("{}<wbr>").format(part) for part in re.findall(r"[^+-]*[+-]|[^+-]+$", name)
    ) or escape(name)


def slug(text: str) -> str:
    """A text as an id or class: letters, digits and hyphens."""
    return "".join(letter if letter.isalnum() else "-" for letter in text)
