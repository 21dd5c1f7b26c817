"""The quality of a model file on inputs with ground truth or labels: the interface of tasks."""

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
    """The measured figures."""

    @property
    def warnings(self) -> Sequence[str]:
        """Unusual properties of the inputs."""

    def figures(self) -> dict[str, float]:
        """Return the figures for a baseline, by the names of `Quality.items`."""

    def settings(self) -> dict[str, Any]:
        """Return how it was measured, by the names of `Quality.settings`."""

    def as_dict(self) -> dict[str, Any]:
        """Return everything in JSON form."""

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table, its head first."""

    def notes(self) -> list[str]:
        """Return further notes, one per line."""


class MeasureQuality(Protocol):
    """Measures a file of the task."""

    def __call__(
        self,
        session: Session,
        options: Any,
        progress: Callable[[str], None] = ...,
        network: Network | None = None,
    ) -> QualityReport:
        """Return the measured figures.

        Args:
            session: The model.
            options: Options of the type `Quality.options`.
            progress: Called with the current step, in words.
            network: The network that the file was exported from, if that is to be measured too.

        Raises:
            NystraError: An input cannot be used, or the model fails.
        """


@dataclass(frozen=True)
class Quality:
    """One way to measure a task.

    Attributes:
        name: Its name in reports and baselines.
        items: Name of a figure -> its limit in a baseline; the first is always measured.
        settings: Name -> type of each measurement setting; baselines with other settings are not
            compared.
        options: The record of its options for ``nystra validate`` and ``nystra check``; it is
            measured if one of them is given.
        measure: Measures a file.
        fixed: Options that ``nystra check`` leaves at their defaults.
    """

    name: str
    items: Mapping[str, GuardedFigure]
    settings: Mapping[str, type]
    options: type[Options]
    measure: MeasureQuality
    fixed: tuple[str, ...] = ()
