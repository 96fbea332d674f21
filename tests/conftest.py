"""What all tests share: shapes enforced in `variants/`, one thread, commands that start at once, and skips that CI does not accept."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import jaxtyping
import pytest
import torch

if TYPE_CHECKING:
    from commands import Commands

# before anything imports the variants: a module that is there already keeps its annotations unchecked.
# Kernels are left out, since Triton compiles a function's own text
VARIANTS = Path(__file__).parent.parent / "variants"
jaxtyping.install_import_hook(
    [f"attnbench.variants.{path.stem}" for path in VARIANTS.glob("*.py")], "beartype.beartype"
)

# before anything imports a kernel, which is then run by Triton's interpreter
os.environ["TRITON_INTERPRET"] = "1"

torch.set_num_threads(1)

hypothesis.settings.register_profile("attnbench", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("attnbench")


@pytest.fixture(scope="session")
def commands() -> "Iterator[Commands]":
    """The process whose forks are commands."""
    from commands import Commands

    with Commands() as running:
        yield running


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--no-skips`, for the place where nothing may be missing."""
    parser.addoption(
        "--no-skips", action="store_true", help="a skipped test is a failure, with its reason, unless marked `gpu`"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test into a failed one under `--no-skips`."""
    report = yield
    if item.get_closest_marker("gpu") is None and not hasattr(report, "wasxfail"):
        _refuse_skip(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a module that skips itself into a failed one under `--no-skips`."""
    report = yield
    _refuse_skip(report, collector.config)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport, config: pytest.Config) -> None:
    if report.skipped and config.getoption("--no-skips"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"--no-skips: {reason}"
