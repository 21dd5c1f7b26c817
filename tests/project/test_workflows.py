"""The workflows call existing scripts, and use pinned actions and minimal permissions."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from shared import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def jobs(workflow: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return found


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(workflow).values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_scripts_exist(workflow: Path) -> None:
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", step["uses"]), step
        for script in re.findall(r"\.ci/[\w.]+", step.get("run", "")):
            assert os.access(ROOT / script, os.X_OK), script


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_may_read_and_only_publishing_may_write(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text(encoding="utf-8"))["permissions"] == {
        "contents": "read"
    }
    for name, job in jobs(workflow).items():
        assert ("permissions" in job) == (name == "publish"), name


def test_nothing_is_published_before_everything_passed() -> None:
    release = jobs(ROOT / ".github/workflows/release.yml")
    assert set(release["publish"]["needs"]) == set(release) - {"publish"}
    assert release["publish"]["environment"] == "release"
