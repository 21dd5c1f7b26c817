"""What a row of the table of tasks holds, and what the parts of a task's folder have to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from ...core.option import Options
    from .answer import Answerer
    from .quality import Quality
    from .result import Result

Runner: TypeAlias = "Callable[..., Sequence[Result]]"
"""Takes an open session, an input and an output path, the options of the row, and the keyword
``report``, a `Report`. Returns the result of each item.
"""

Report: TypeAlias = "Callable[[Any, int, int], None]"
"""Called with (`Result`, things done, things in total) after each image or frame."""


class Summary(Protocol):
    """A module that puts the results of a task into words."""

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
        names: Values of ``nystra.task`` that it serves.
        takes: Roles that a file has to have among its inputs.
        may_take: Roles that it may have besides, each of any number of inputs.
        gives: Role of the first output.
        run: What runs a file on paths.
        summary: What puts the results into words.
        options: The records that ``run`` takes, in their order: a field for each flag of ``nystra
            run`` that goes with the task; others are refused.
        needs_output: Without ``-o`` nothing would come of a run; otherwise results are printed.
        answer: The class that answers requests which carry files: ``nystra serve``, Triton and Ray
            Serve go by it; None: the task answers none.
        service: What ``nystra serve`` offers beyond one answer after the other, such as runs that
            several requests share, a `Service`; None if ``answer`` says it all.
        quality: How good what a file makes is measured; None: it is not.
        run_distributed: As ``run``, with the workers of a cluster; None: it is not distributed.
    """

    names: tuple[str, ...]
    takes: tuple[str, ...]
    may_take: tuple[str, ...]
    gives: str
    run: Callable[[], Runner]
    summary: Callable[[], Summary]
    options: tuple[Callable[[], type[Options]], ...]
    needs_output: bool = True
    answer: Callable[[], type[Answerer]] | None = None
    service: Callable[[], Any] | None = None
    quality: Callable[[], Quality] | None = None
    run_distributed: Callable[[], Runner] | None = None
