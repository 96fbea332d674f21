"""What a variant can refuse, and how it says so: what was needed, what came, what to do."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in what was asked for. Shown as one message, without a traceback; the exit code is 2."""


class UnknownVariant(UserError):
    """A name that no variant has."""


class BadParameter(UserError):
    """A number in a variant's name, or a combination of parts, outside what the mathematics allows."""


class BadVariant(UserError):
    """A variant file that cannot be imported, or a description that lacks something."""


class Unsupported(Exception):
    """A form that cannot run here: another device, dtype or shape than it was made for. Becomes a skipped row."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known names, and the nearest to `name` where one is near: a sentence to end an error message with."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"Known: {', '.join(names)}.{hint}"
