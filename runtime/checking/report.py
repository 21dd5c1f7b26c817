"""The results of the gate as CI systems read them: JUnit, Markdown, GitHub annotations."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...core.errors import NystraError
from ...core.plain_text import printable
from .baseline import DIGESTS, list_guarded_items
from .gate import FAILED, FILE, OUTPUTS, SKIPPED, CheckResult


def junit(model: str, results: Sequence[CheckResult], seconds: float = 0.0) -> bytes:
    """Return the results as JUnit XML in UTF-8: a test suite with a case an item.

    Control characters, most of which XML 1.0 cannot hold, are escaped; see `printable`.

    Args:
        model: Name of the model file.
        results: Results of the gate.
        seconds: That the check took.
    """
    counts = {
        "tests": str(len(results)),
        "failures": str(sum(result.state == FAILED for result in results)),
        "errors": "0",
        "skipped": str(sum(result.state == SKIPPED for result in results)),
        "time": f"{seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "nystra check", **counts})
    for result in results:
        names = {"classname": printable(model), "name": printable(result.item), "time": "0.000"}
        case = ElementTree.SubElement(suite, "testcase", names)
        if result.state == FAILED:
            failure = {"message": printable(result.message), "type": "regression"}
            ElementTree.SubElement(case, "failure", failure).text = printable(result.message)
        elif result.state == SKIPPED:
            ElementTree.SubElement(case, "skipped", {"message": printable(result.message)})
    ElementTree.indent(root)
    body: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def markdown(model: str, results: Sequence[CheckResult]) -> str:
    """Return the results as a Markdown section with a table."""
    titles = {name: item.title for name, item in list_guarded_items().items()}
    titles = {result.item: result.item for result in results} | titles
    titles |= {FILE: "model file", OUTPUTS: "outputs against the accepted ones", **DIGESTS}
    failed = sum(result.state == FAILED for result in results)
    head = "passed" if not failed else f"{failed} of {len(results)} items failed"
    lines = [
        f"### nystra check {_cell(model)}: {head}",
        "",
        "| item | measured | accepted | limit | verdict |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for result in results:
        measured = "" if result.measured is None else f"{result.measured:.6g}"
        accepted = "" if result.accepted is None else f"{result.accepted:.6g}"
        limit = "" if result.limit is None else f"{_describe_bound(result.item)} {result.limit:.6g}"
        state = f"**{result.state}**" if result.state == FAILED else result.state
        lines.append(
            f"| {_cell(titles[result.item])} | {measured} | {accepted} | {limit} | {state} |"
        )
    lines += [
        "",
        *(f"- {_cell(result.message)}" for result in results if result.state == FAILED),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _describe_bound(item: str) -> str:
    return "≤" if item == OUTPUTS or list_guarded_items()[item].grows_worse else "≥"


def github_annotations(
    model: Path, results: Sequence[CheckResult], environment: Mapping[str, str]
) -> list[str]:
    """Return a GitHub workflow command ``::error ...`` for every item that failed.

    Empty outside of GitHub Actions (``GITHUB_ACTIONS`` is not ``true``). The path is relative to
    ``GITHUB_WORKSPACE`` if the file is in it.
    """
    if environment.get("GITHUB_ACTIONS") != "true":
        return []
    file = str(model)
    workspace = environment.get("GITHUB_WORKSPACE")
    if workspace and model.resolve().is_relative_to(Path(workspace).resolve()):
        file = model.resolve().relative_to(Path(workspace).resolve()).as_posix()
    return [
        f"::error file={_property(file)},title={_property(f'nystra check: {result.item}')}::"
        f"{_data(result.message)}"
        for result in results
        if result.state == FAILED
    ]


def append_step_summary(text: str, environment: Mapping[str, str]) -> None:
    """Append Markdown to the job's summary, if ``GITHUB_STEP_SUMMARY`` names its file.

    Raises:
        NystraError: The file cannot be written.
    """
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(text + os.linesep)
    except OSError as error:
        raise NystraError(
            f"cannot write the summary {path} that GITHUB_STEP_SUMMARY names: {error.strerror}"
        ) from error


def _data(text: str) -> str:
    """Escape as the runner's toolkit does for the message of a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape as the runner's toolkit does for a property of a command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _cell(text: str) -> str:
    """Return text as one line of Markdown, in which nobody is mentioned and nothing is a link."""
    escaped = re.sub(r"([\\`*_{}\[\]<>|&])", r"\\\1", printable(re.sub(r"\s+", " ", text)))
    return re.sub(r"(@|#(?=\d)|:(?=//)|\bwww(?=\.))", r"\1&#8203;", escaped)
