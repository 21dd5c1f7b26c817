"""A child process that answers requests: JSON, one line each, on stdin and stdout.

A request that fails is answered by ``{"error": text, "exit_code": number}``. The process ends
when stdin does. Whatever libraries print goes to stderr.
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


def answer_requests(answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> int:
    """Answer requests until stdin ends; return the exit code.

    Args:
        answer: From a request to its answer; may raise whatever it likes.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _offer_to_the_memory_killer()
    for line in sys.stdin:
        try:
            made = answer(json.loads(line))
        except NystraError as error:
            made = {"error": str(error), "exit_code": error.exit_code}
        except ModuleNotFoundError as error:
            made = {"error": f"{error.name} is not installed", "exit_code": 3}
        except MemoryError:
            made = {"error": "the memory does not suffice", "exit_code": 1}
        except Exception as error:  # the parent makes a row of it, whatever it was
            made = {"error": f"{type(error).__name__}: {error}", "exit_code": 1}
        answers.write(json.dumps(made) + "\n")
        answers.flush()
    return 0


def _offer_to_the_memory_killer() -> None:
    """Let Linux end this process, not its parent, when the memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
