"""The sections of the report, found by themselves: a module in this folder that exports a SECTION is one."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from attnbench.reports.section import SuiteSection

# where suites that nobody wrote a section for stand: behind what one gets, before what one pays
_ELSEWHERE = 50


@cache
def sections() -> Mapping[str, SuiteSection]:
    """All sections by the name of their suite, in reading order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found: list[SuiteSection] = [importlib.import_module(f"{__name__}.{name}").SECTION for name in names]
    return {section.suite: section for section in sorted(found, key=lambda one: (one.place, one.suite))}


def section_of(suite: str) -> SuiteSection:
    """The section of a suite; one that shows tables and the headline's figure for a suite without."""
    return sections().get(suite) or SuiteSection(suite, _ELSEWHERE)
