"""The process that asks an address whether Ray answers there.

Ray itself would wait long; a separate process can be ended. It answers as described in
`answer_requests`: ``{"do": "connect", "address": "HOST:PORT"}`` -> ``{}``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ..workers.loop import Send, answer_requests


def _answer(request: Mapping[str, Any], send: Send) -> dict[str, Any]:
    import_module("ray._raylet").GcsClient(address=request["address"])
    return {}


if __name__ == "__main__":
    sys.exit(answer_requests(_answer))
