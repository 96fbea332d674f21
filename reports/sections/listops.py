"""Can nested lists be worked out: accuracy beside what counting reaches."""

from attnbench.reports.section import SuiteSection

SECTION = SuiteSection("listops", 25)
