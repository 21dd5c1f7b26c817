"""The table of tasks: how a model file of each ``nystra.task`` is used on real things.

A row says which roles a file of the task has, and what runs it. A new task is a new row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ...core.errors import NystraError
from ...core.ports.port import Port
from ..session import Session

if TYPE_CHECKING:
    from ..serving.service import Service

Runner: TypeAlias = Callable[..., list[dict[str, Any]]]
"""Takes an open session, an input and an output path and the options of the row; by name ``video``,
the `VideoOptions`, and ``report``, a `Report`.

Returns for each thing it ran ``input``, ``output``, ``status`` (done, failed or skipped),
``reason``, ``error`` and ``warnings``, and what else the task tells.
"""


class Telling(Protocol):
    """What is said to people of the results of a task."""

    def rows(self, results: Sequence[dict[str, Any]], /) -> list[tuple[str, ...]]:
        """Return a table, its head first."""

    def line(self, result: dict[str, Any], /) -> str:
        """Return what became of one thing."""


def _run_options() -> type[Any]:
    from .restoration.options import RunOptions

    return RunOptions


def _restored() -> Telling:
    from .restoration import summary as telling

    return telling


@dataclass(frozen=True)
class Task:
    """One row.

    Attributes:
        names: Values of ``nystra.task`` that it serves.
        takes: Roles that a file has to have among its inputs.
        may_take: Roles that it may have besides.
        gives: Role of the first output.
        load: Imports what runs a file, when it is wanted.
        tell: Imports what tells of the results.
        options: Imports the dataclass that the runner takes: a field for each flag of
            ``nystra run`` that goes with the task; others are refused.
        needs_output: Without ``-o`` nothing would come of a run; otherwise results are told.
        serve: Imports what ``nystra serve`` offers for it; None where it offers nothing.
    """

    names: tuple[str, ...]
    takes: tuple[str, ...]
    may_take: tuple[str, ...]
    gives: str
    load: Callable[[], Runner]
    tell: Callable[[], Telling] = _restored
    options: Callable[[], type[Any]] = _run_options
    needs_output: bool = True
    serve: Callable[[], Service] | None = None


def _restoration() -> Runner:
    from .video.dispatch import run_restoration

    return run_restoration


def _video() -> Runner:
    from .video.run import run_video

    return run_video


def _classification() -> Runner:
    from .classification.run import classify_pictures

    return classify_pictures


def _restoring() -> Service:
    from ..serving.restoring import SERVICE

    return SERVICE


def _classifying() -> Service:
    from ..serving.classifying import SERVICE

    return SERVICE


def _class_options() -> type[Any]:
    from .classification.options import ClassOptions

    return ClassOptions


def _classified() -> Telling:
    from .classification import summary as telling

    return telling


TASKS = [
    Task(
        names=("restoration", "inpainting", "colorization"),
        takes=("image",),
        may_take=("mask", "reference"),
        gives="picture",
        load=_restoration,
        serve=_restoring,
    ),
    Task(names=("video",), takes=("frames",), may_take=(), gives="frames", load=_video),
    Task(
        names=("classification",),
        takes=("image",),
        may_take=(),
        gives="logits",
        load=_classification,
        tell=_classified,
        options=_class_options,
        needs_output=False,
        serve=_classifying,
    ),
]


def find_task(session: Session) -> Task:
    """Return the row of a model file.

    Raises:
        NystraError: No row serves its task, or the file's inputs and outputs are not the row's.
    """
    facts = session.facts
    task = next((row for row in TASKS if facts.task in row.names), None)
    if task is None:
        known = ", ".join(name for row in TASKS for name in row.names)
        raise NystraError(
            f"{session.path} is made for the task {facts.task!r}, which nystra run does not know; "
            f"it knows {known}. Run it from Python with nystra.runtime.Session"
        )
    roles = [port.role for port in facts.inputs]
    allowed = {*task.takes, *task.may_take}
    fits = set(task.takes) <= set(roles) <= allowed and len(set(roles)) == len(roles)
    if not fits or not facts.outputs or facts.outputs[0].role != task.gives:
        wanted = " and ".join(task.takes)
        also = f" (and {' or '.join(task.may_take)})" if task.may_take else ""
        raise NystraError(
            f"{session.path} does not take one {wanted}{also} and give one {task.gives}, as a file "
            f"of the task {facts.task!r} does: it takes {_described(facts.inputs)} and gives "
            f"{_described(facts.outputs)}. Run it from Python with nystra.runtime.Session"
        )
    return task


def _described(ports: Sequence[Port]) -> str:
    return ", ".join(
        f"{port.name} ({port.role}: {' x '.join(port.axes)}, {port.dtype})" for port in ports
    )
