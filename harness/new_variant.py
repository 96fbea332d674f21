"""A starting file for a variant of one's own, which passes every check as it stands."""

import importlib.resources
import re
from pathlib import Path

from attnbench.variants.errors import UnknownVariant, UserError
from attnbench.variants.names import PATTERN
from attnbench.variants.registry import find


def write_variant(name: str, folder: Path) -> Path:
    """The path of a new file in `folder` that exports a variant called `name`.

    Raises UserError for a name that is not legal or taken, a folder that is not there and a file that is.
    """
    if not PATTERN.fullmatch(name):
        near = re.sub(r"[^a-z0-9]", "", name.lower()).lstrip("0123456789") or "mine"
        raise UserError(
            f"'{name}' cannot name a variant: a name is lower-case letters and digits, then -letters<number>, then "
            f"+modifier. Try '{near}'."
        )
    if not _is_free(name):
        raise UserError(f"'{name}' is taken, or reads as a variant made of known parts. Give the new one another name.")
    if not folder.is_dir():
        raise UserError(f"no folder {folder} to write '{name}' into. Make it first, or name another.")
    path = folder / (re.sub(r"[-+]", "_", name) + ".py")
    template = importlib.resources.files("attnbench.harness").joinpath("templates", "variant.py.txt").read_text("utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template.replace("NAME", name))
    except FileExistsError as problem:
        raise UserError(f"{path} is there already and is left as it is. Give the variant another name.") from problem
    except OSError as problem:
        raise UserError(f"cannot write {path}: {problem.strerror}. Name a folder that can be written to.") from problem
    return path


def _is_free(name: str) -> bool:
    """Whether no variant has the name, and none would be read into it."""
    base = re.split(r"[-+]", name)[0]
    for one in (name, base):
        try:
            find(one)
        except UnknownVariant as problem:
            if not str(problem).startswith(f"no variant '{one}'"):
                return False
        except UserError:
            return False
        else:
            return False
    return True
