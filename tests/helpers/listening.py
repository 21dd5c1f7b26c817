"""Child processes that hear signals."""

import signal
from functools import partial
from typing import Any

LISTENING: dict[str, Any] = {"preexec_fn": partial(signal.signal, signal.SIGINT, signal.SIG_DFL)}
"""Arguments of `subprocess`: a shell starts what it puts into the background without SIGINT."""
