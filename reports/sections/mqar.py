"""Can several pairs be recalled while reading on: accuracy against pairs."""

from attnbench.reports.section import SuiteSection

SECTION = SuiteSection("mqar", 20)
