"""One thread per test process: the suite runs in parallel, and results do not depend on it."""

import atexit
import gc
import os
from typing import Any

import pytest

import groups
import nystra.core  # noqa: F401  # first: it turns off the telemetry of what tests import
import shares

os.environ.setdefault("OMP_NUM_THREADS", "1")
gc.set_threshold(100_000)  # tracing makes so much that the usual 700 cost a tenth of the time


def pytest_collection_finish() -> None:
    """Keep the garbage collector from visiting modules and tests again and again."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries look at the end for what was not released


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--share``."""
    parser.addoption("--share", default="1/1", help="the tests to run: 2/4 is the second quarter")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other shares."""
    config.hook.pytest_deselected(items=shares.leave_out(items, config.getoption("share")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker runs the tests of a group."""
    return groups.scheduler(config, log)
