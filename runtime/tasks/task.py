"""A row of the table of tasks, and the interfaces of a task's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from ...core.option import Options
    from .handler import Handler
    from .quality import Quality
    from .result import Result

Runner: TypeAlias = "Callable[..., Sequence[Result]]"
"""Takes an open session, an input and an output path, the options of the row, and the keyword
``report``, a `Report`. Returns the result of each item.
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
        run_distributed: As ``run``, with the workers of a cluster; None: not supported.
    """

    names: tuple[str, ...]
    inputs: tuple[str, ...]
    optional_inputs: tuple[str, ...]
    output: str
    run: Callable[[], Runner]
    summary: Callable[[], Summary]
    options: tuple[Callable[[], type[Options]], ...]
    needs_output: bool = True
    handler: Callable[[], type[Handler]] | None = None
    quality: Callable[[], Quality] | None = None
    run_distributed: Callable[[], Runner] | None = None
