"""The child process of a benchmark that runs PyTorch: sessions in the given backends."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runtime.timing.worker import Opened, open_session, serve
from .backend import register_torch


def open_network(request: Mapping[str, Any]) -> Opened:
    """Open a session as `open_session` does; keys besides: ``checkpoint`` (or None), ``hyper``.

    Raises:
        NystraError: The model cannot be used.
        BackendUnavailableError: There is no checkpoint to run, or PyTorch finds no GPU.
    """
    checkpoint = request["checkpoint"]
    path = None if checkpoint is None else Path(checkpoint)
    register_torch(path, request.get("hyper") or {})
    return open_session(request)


if __name__ == "__main__":
    sys.exit(serve(open_network))
