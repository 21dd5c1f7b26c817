"""How good a model file is, on inputs of which more is known: what a task says of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ...core.option import Options

if TYPE_CHECKING:
    from ..metrics.guarded_figure import GuardedFigure
    from ..session import Session

Network: TypeAlias = "Callable[[], Any]"
"""Returns the network that a file was exported from, as it was trained: arrays in, arrays out."""


class QualityReport(Protocol):
    """What was measured."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is odd about the inputs."""

    def figures(self) -> dict[str, float]:
        """Return what a baseline guards, by the names of `Quality.items`."""

    def settings(self) -> dict[str, Any]:
        """Return how it was measured, by the names of `Quality.settings`."""

    def as_dict(self) -> dict[str, Any]:
        """Return everything in JSON form."""

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table, its head first."""

    def notes(self) -> list[str]:
        """Return what else there is to say, in lines."""


class MeasureQuality(Protocol):
    """Measures a file of the task."""

    def __call__(
        self,
        session: Session,
        options: Any,
        progress: Callable[[str], None] = ...,
        network: Network | None = None,
    ) -> QualityReport:
        """Return what was measured.

        Args:
            session: The model.
            options: Of the type `Quality.options`.
            progress: Called with what is being done, in words.
            network: What the file was exported from, where that is to be measured too.

        Raises:
            NystraError: An input cannot be used, or the model fails.
        """


@dataclass(frozen=True)
class Quality:
    """One way to measure a task.

    Attributes:
        name: Of what is measured, as reports and baselines have it.
        items: Name of a figure -> how a baseline guards it; the first is always measured.
        settings: Name -> type of what says how it was measured: baselines that differ in it are
            not compared.
        options: The record of what ``nystra validate`` and ``nystra check`` have to be given; it is
            measured where one of them is.
        measure: Measures a file.
        fixed: Options that ``nystra check`` leaves at their defaults.
    """

    name: str
    items: Mapping[str, GuardedFigure]
    settings: Mapping[str, type]
    options: type[Options]
    measure: MeasureQuality
    fixed: tuple[str, ...] = ()
