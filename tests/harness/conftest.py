"""What the tests of running share: commands that start at once, and a folder whose database they use."""

from collections.abc import Iterator

import pytest
from commands import Commands


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """The process whose forks are commands."""
    with Commands() as running:
        yield running
