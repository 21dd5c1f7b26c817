"""Requests to a process that calls TensorRT, and why a builder refused a model.

TensorRT ends its process in unexpected situations: a plugin without a format, a convolution to be
timed without a GPU. So every call has a separate process, and one that dies is an answer too.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import BackendUnavailableError, ExportError, NystraError
from ...core.files.scratch import scratch_folder
from ...plugins.domain import DOMAIN
from ..model.onnx_graph import domain_nodes
from ..workers.child import Child, ChildError, Progress
from . import toolkit
from .model import EngineModel

WORKER = f"{__package__}.worker"
_GRACE_SECONDS = 60.0
"""TensorRT needs time to release its resources, and logs while it does."""

_ADDR_NO_RANDOMIZE = 0x0040000

_ERRORS = {1: ExportError, 3: BackendUnavailableError}


@dataclass(frozen=True)
class Refusal:
    """What was refused.

    Attributes:
        node: Name of the refused node, or empty.
        operator: Its operator, if known.
        reason: The messages of TensorRT and of nystra's plugins.
    """

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        where = f"node {self.node}" if self.node else "the file"
        kind = f" ({self.operator})" if self.operator else ""
        return f"{where}{kind} is refused: {self.reason}"


@dataclass
class BuilderAnswer:
    """The answer of a process.

    Attributes:
        values: The answer; empty if it died.
        death: How it died, or None.
        output: What it and the libraries in it printed, line by line.
    """

    values: dict[str, Any] = field(default_factory=dict)
    death: str | None = None
    output: list[str] = field(default_factory=list)

    @property
    def plugin_output(self) -> list[str]:
        """The output of nystra's plugins, without the prefix."""
        return [line[len("nystra: ") :] for line in self.output if line.startswith("nystra: ")]

    @property
    def refusal(self) -> Refusal | None:
        """What was refused, or None; a dead process is a refusal."""
        remark = "".join(f" The plugin says: {line}." for line in self.plugin_output[:1])
        if self.death is not None:
            last = f": {self.output[-1][:300]}" if self.output else ""
            return Refusal("", "", f"the builder's process {self.death}{last}.{remark}")
        if (refused := self.values.get("refusal")) is None:
            return None
        reason = " ".join(str(refused["reason"]).split())
        return Refusal(refused["node"], refused["operator"], reason[:600] + remark)


def ask(
    request: Mapping[str, Any],
    *,
    seconds: float = 900.0,
    progress: Progress = lambda _what, _done, _total: None,
) -> BuilderAnswer:
    """Send one request to a fresh process of `worker` and return its answer.

    Args:
        request: With ``do`` and ``backend``, see `worker`.
        seconds: The process is ended when it has not answered by then.
        progress: Is called while the process works.

    Raises:
        NystraError: The process reported bad input.
        ExportError: It reported that a build failed.
        BackendUnavailableError: The builder is not installed there.
    """
    backend = str(request["backend"])
    toolkit.require(backend)
    answer = BuilderAnswer()
    with scratch_folder() as folder:
        links = toolkit.loader_links(backend, folder)
        child = Child(
            WORKER,
            seconds,
            environment={**links, "PYTHONHASHSEED": "0"},
            before=_same_addresses,
            grace=_GRACE_SECONDS,
        )
        with child:
            try:
                answer.values = child.ask(str(request["do"]), request, progress)
            except ChildError as error:
                if error.death is None:
                    raise _ERRORS.get(error.exit_code, NystraError)(str(error)) from error
                answer.death = error.death
        answer.output = child.output
    return answer


def unsupported_reason(model: EngineModel, plugins: Sequence[str]) -> Refusal | None:
    """Return a refusal if the plugin library is loaded but a nystra node is not a plugin.

    Args:
        model: The model and its plugin library.
        plugins: Names of the network's plugin layers.
    """
    nodes = domain_nodes(model.path, DOMAIN)
    if model.library is None or len(plugins) >= len(nodes):
        return None
    name, operator = next((node for node in nodes if node[0] not in plugins), nodes[0])
    return Refusal(
        name,
        operator,
        f"{model.library.name} was loaded, but only {len(plugins)} of {len(nodes)} nystra nodes "
        "are plugins: build the library of this nystra, or compile the bodies with `library` "
        "none",
    )


def _same_addresses() -> None:
    """Turn address randomization off: TensorRT-RTX numbers symbolic sizes in address order.

    With randomization the bytes of an engine of free sizes differ from build to build. If the
    system forbids turning it off, they do.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.personality(libc.personality(0xFFFFFFFF) | _ADDR_NO_RANDOMIZE)
