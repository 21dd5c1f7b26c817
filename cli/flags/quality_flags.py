"""The flags that measure the quality of a model file, from all tasks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...core.errors import NystraError
from .option_flags import add_options

if TYPE_CHECKING:
    from ...core.option import Options
    from ...runtime.session import Session
    from ...runtime.tasks.quality import Quality

    Requested = list[tuple[Quality, Options]]


def add_quality_arguments(parser: argparse.ArgumentParser, *, fixed: bool = False) -> None:
    """Add them.

    Args:
        parser: Parser of a command.
        fixed: Omit the options that ``nystra check`` keeps at their defaults.
    """
    from ...runtime.tasks.registry import task_qualities

    for quality in task_qualities().values():
        left_out = quality.fixed if fixed else ()
        names = [name for name in quality.options.list_options() if name not in left_out]
        add_options(parser, quality.options, names)


def read_requested_qualities(args: argparse.Namespace) -> Requested:
    """Return what is to be measured, each with its options.

    Raises:
        NystraError: Options contradict each other.
    """
    from ...runtime.tasks.registry import task_qualities

    requested: Requested = []
    for quality in task_qualities().values():
        names = [name for name in quality.options.list_options() if hasattr(args, name)]
        options = quality.options(**{name: getattr(args, name) for name in names})
        if options.list_changes().keys() - set(quality.fixed):
            requested.append((quality, options))
    return requested


def check_requested(session: Session, requested: Requested) -> None:
    """Raise NystraError where something is to be measured that the model's task does not know."""
    from ...runtime.tasks.registry import find_task

    for quality, options in requested:
        own = find_task(session).quality
        if own is None or own().name != quality.name:
            names = ", ".join(f"`{name}`" for name in options.list_changes())
            raise NystraError(
                f"{names}: does not apply to a model of the task {session.facts.task!r}"
            )
