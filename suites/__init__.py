"""The questions, one file each. A suite file declares a `SUITE` and a `measure` (or, where the clock runs, a `prepare`)."""

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnbench.harness.spec import Suite


def find_suites() -> dict[str, "Suite"]:
    """Name -> suite, for every file of this folder that declares one."""
    found: dict[str, Suite] = {}
    for info in pkgutil.iter_modules(__path__):
        if info.ispkg or info.name in {"conftest", "pytest_plugin"}:
            continue
        suite: Suite = importlib.import_module(f"{__name__}.{info.name}").SUITE
        found[suite.name] = suite
    return found
