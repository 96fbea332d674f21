"""What `pytest suites/` needs: the suites as items."""

from attnbench.suites.pytest_plugin import (  # noqa: F401
    pytest_addoption,
    pytest_collect_file,
    pytest_collectstart,
    pytest_generate_tests,
    recorder,
)
