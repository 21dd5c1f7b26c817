"""A child process that answers requests: JSON, one line each, on stdin and stdout.

A request that fails is answered by ``{"error": text, "exit_code": number}``. The process ends when
stdin does.
The output of libraries goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...core.installation import install_module

Send = Callable[[Mapping[str, Any]], None]
"""Writes a line to the parent."""


def answer_requests(answer: Callable[[Mapping[str, Any], Send], Mapping[str, Any]]) -> int:
    """Answer requests until stdin ends; return the exit code.

    Args:
        answer: Takes a request and returns its answer; may raise any exception.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _offer_to_the_oom_killer()

    def send(message: Mapping[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), send)
        except NystraError as error:
            reply = {"error": str(error), "exit_code": error.exit_code}
        except ModuleNotFoundError as error:
            missing = f"{error.name} is not installed: {install_module(error.name or '')}"
            reply = {"error": missing, "exit_code": 3}
        except MemoryError:
            reply = {"error": "not enough memory", "exit_code": 1}
        except Exception as error:  # noqa: BLE001 - the parent reports the error
            reply = {"error": f"{type(error).__name__}: {error}", "exit_code": 1}
        send(reply)
    return 0


def _offer_to_the_oom_killer() -> None:
    """Make Linux end this process rather than its parent when memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
