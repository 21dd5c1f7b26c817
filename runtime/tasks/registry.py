"""The table of tasks: how a model file of each ``nystra.task`` is used.

A row names the roles that a file of the task has and the parts of the task's folder. A new task is
a folder and a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ...core.errors import NystraError
from ...core.lazy import Lazy
from ...core.metadata import ModelMetadata, newer_writer
from ...core.ports.port import CONDITION, Port

if TYPE_CHECKING:
    from ...core.option import Options
    from ..session import Session
    from .handler import Handler
    from .quality import Quality
    from .result import Result

Runner: TypeAlias = "Callable[..., Sequence[Result]]"
"""Takes an open session, an input and an output path, the options of the row, and the keyword
``report``, a `Report`; if the row is ``distributed``, also ``cluster``, `ClusterOptions` or None.
Returns the result of each item.
"""

Report: TypeAlias = "Callable[[Any, int, int], None]"
"""Called with (`Result`, items done, items in total) after each image or frame."""


class Summary(Protocol):
    """A module that prints the results of a task."""

    def rows(self, results: Sequence[Any], /) -> list[tuple[str, ...]]:
        """Return a table, its head first."""

    def line(self, result: Any, /) -> str:
        """Return the result of one input."""

    def example(self, model: str, /) -> str:
        """Return a program in Python that runs a model file of this name."""


@dataclass(frozen=True)
class Task:
    """One row.

    Attributes:
        names: Its values of ``nystra.task``.
        example: Names of an input file and an output file, for messages.
        inputs: Roles that the inputs of a file must have.
        optional_inputs: Roles of further inputs, each any number of times.
        output: Role of the first output.
        run: Runs a file on paths.
        summary: Prints the results.
        options: The records that ``run`` takes, in their order: a field for each flag of ``nystra
            run`` that applies to the task; other flags are refused.
        needs_output: A run needs ``-o``; otherwise results are printed.
        handler: The class that answers requests with files, for ``nystra serve``, Triton and Ray
            Serve; None: the task has no requests.
        quality: Measures the quality of a file's outputs; None: nothing is measured.
        distributed: ``run`` can use the workers of a cluster.
    """

    names: tuple[str, ...]
    example: tuple[str, str]
    inputs: tuple[str, ...]
    optional_inputs: tuple[str, ...]
    output: str
    run: Callable[[], Runner]
    summary: Callable[[], Summary]
    options: tuple[Callable[[], type[Options]], ...]
    needs_output: bool = True
    handler: Callable[[], type[Handler]] | None = None
    quality: Callable[[], Quality] | None = None
    distributed: bool = False


def _part(module: str, name: str | None = None) -> Lazy[Any]:
    return Lazy(__package__, module, name)


_RESTORING: tuple[Callable[[], type[Options]], ...] = (
    _part("restoration.options", "RunOptions"),
    _part("video.options", "VideoOptions"),
)

TASKS = [
    Task(
        names=("restoration", "inpainting", "colorization"),
        example=("photo.png", "restored.png"),
        inputs=("image",),
        optional_inputs=("mask", "reference", CONDITION),
        output="picture",
        run=_part("restoration.run", "run_restoration"),
        summary=_part("restoration.result"),
        options=_RESTORING,
        handler=_part("restoration.handler", "RestorationHandler"),
        quality=_part("restoration.guarded_quality", "QUALITY"),
        distributed=True,
    ),
    Task(
        names=("video",),
        example=("clip.mp4", "restored.mp4"),
        inputs=("frames",),
        optional_inputs=(),
        output="frames",
        run=_part("video.run", "run_video"),
        summary=_part("video.result"),
        options=_RESTORING,
        quality=_part("restoration.guarded_quality", "QUALITY"),
        distributed=True,
    ),
    Task(
        names=("classification",),
        example=("photo.jpg", "classes.csv"),
        inputs=("image",),
        optional_inputs=(),
        output="logits",
        run=_part("classification.run", "classify_images"),
        summary=_part("classification.result"),
        options=(_part("classification.options", "ClassOptions"),),
        needs_output=False,
        handler=_part("classification.handler", "ClassificationHandler"),
        quality=_part("classification.quality", "QUALITY"),
    ),
]


def task_named(name: str) -> Task | None:
    """Return the row of a value of ``nystra.task``, or None."""
    return next((row for row in TASKS if name in row.names), None)


def task_qualities() -> dict[str, Quality]:
    """Return the quality measurements of all tasks, by name; rows may share them."""
    listed = [row.quality() for row in TASKS if row.quality is not None]
    return {quality.name: quality for quality in listed}


def find_task(session: Session) -> Task:
    """Return the row of a model file.

    Raises:
        NystraError: No row has its task, or the file has other inputs and outputs than the row.
    """
    facts = session.facts
    task = task_named(facts.task)
    if task is None:
        names = ", ".join(name for row in TASKS for name in row.names)
        raise NystraError(
            f"{session.path} is a model of the task {facts.task!r}, which nystra run does not "
            f"support; supported are {names}{_newer(session)}. Run it from Python with "
            "nystra.runtime.Session"
        )
    roles = [port.role for port in facts.inputs]
    required = [role for role in roles if role not in task.optional_inputs]
    if (
        sorted(required) != sorted(task.inputs)
        or not facts.outputs
        or facts.outputs[0].role != task.output
    ):
        inputs = " and ".join(task.inputs)
        also = f" (and {' or '.join(task.optional_inputs)})" if task.optional_inputs else ""
        raise NystraError(
            f"{session.path} does not take one {inputs}{also} and return one {task.output}, as a "
            f"file of the task {facts.task!r} does: it takes {_describe(facts.inputs)} and "
            f"returns {_describe(facts.outputs)}{_newer(session)}. Run it from Python with "
            "nystra.runtime.Session"
        )
    return task


def find_handler(session: Session) -> type[Handler]:
    """Return the class that answers requests to a model file.

    Raises:
        NystraError: As `find_task`; also if the task answers no requests.
    """
    task = find_task(session)
    if task.handler is None:
        names = ", ".join(name for row in TASKS if row.handler is not None for name in row.names)
        raise NystraError(
            f"{session.path} is a model of the task {session.facts.task!r}, which cannot be "
            f"served: expected {names}. nystra run supports it"
        )
    return task.handler()


def _newer(session: Session) -> str:
    return newer_writer(ModelMetadata.read(session.metadata).version)


def _describe(ports: Sequence[Port]) -> str:
    return ", ".join(
        f"{port.name} ({port.role}: {' x '.join(port.axes)}, {port.dtype})" for port in ports
    )
