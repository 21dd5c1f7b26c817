"""Requests to a process that calls a builder: answers, progress, errors and deaths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nystra.core.errors import BackendUnavailableError, ExportError, NystraError
from nystra.runtime.engines import child, toolkit

WORKER = """
import os, signal, sys
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.runtime.workers.loop import answer_requests

def answer(request, send):
    do = request["do"]
    print("nystra: the plugin's reason", file=sys.stderr)
    if do == "build":
        for step in range(3):
            send({"progress": ["tactics", step, 3]})
        return {"version": "1", "address": os.environ["PYTHONHASHSEED"], "refusal": None}
    if do == "check":
        send({"checked": True})
        os._exit(0)
    if do == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if do == "bad":
        raise NystraError("bad input")
    if do == "missing":
        raise BackendUnavailableError("no builder")
    raise RuntimeError("odd")

sys.exit(answer_requests(answer))
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "odd_builder.py").write_text(WORKER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(child, "WORKER", "odd_builder")
    monkeypatch.setattr(toolkit, "require", lambda _name: None)
    return lambda do, **how: child.ask({"backend": toolkit.TENSORRT, "do": do}, **how)


def test_an_answer_with_its_progress_and_output(asked: Any) -> None:
    steps: list[tuple[str, int, int]] = []
    answer = asked("build", progress=lambda *step: steps.append(step))
    assert steps == [("tactics", step, 3) for step in range(3)]
    assert answer.values["address"] == "0"
    assert answer.plugin_output == ["the plugin's reason"]
    assert answer.death is None
    assert answer.refusal is None


def test_an_answer_before_the_process_leaves(asked: Any) -> None:
    assert asked("check").values == {"checked": True}


def test_a_death_is_a_refusal(asked: Any) -> None:
    refusal = asked("die").refusal
    assert refusal is not None
    assert "the builder's process was ended by SIGSEGV" in refusal.reason
    assert "The plugin says: the plugin's reason." in refusal.reason


@pytest.mark.parametrize(
    ("do", "kind", "message"),
    [
        ("bad", NystraError, "bad input"),
        ("missing", BackendUnavailableError, "no builder"),
        ("odd", ExportError, "RuntimeError: odd"),
    ],
)
def test_errors_keep_their_kind(asked: Any, do: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        asked(do)
    assert type(caught.value) is kind
