"""A stub of the parts of ComfyUI that a node uses: the progress bar and cancelling."""

from __future__ import annotations

import sys
import types

import pytest


class Interrupted(Exception):  # noqa: N818  # ComfyUI's is no error either
    """The user cancelled."""


class StubOfComfyUI:
    """The reports of a node.

    Attributes:
        steps: (done, all) of each report to the progress bar.
        cancel_after: The user cancels after so many reports; None: never.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.cancel_after: int | None = None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Install the modules that nodes import."""
        stub = self

        class ProgressBar:
            def __init__(self, total: int) -> None:
                self.total = total

            def update_absolute(self, value: int, total: int | None = None) -> None:
                stub.steps.append((value, total or self.total))

        def throw() -> None:
            if stub.cancel_after is not None and len(stub.steps) >= stub.cancel_after:
                raise Interrupted

        package = types.ModuleType("comfy")
        package.__path__ = []
        utils = types.ModuleType("comfy.utils")
        utils.ProgressBar = ProgressBar  # type: ignore[attr-defined]
        management = types.ModuleType("comfy.model_management")
        management.throw_exception_if_processing_interrupted = throw  # type: ignore[attr-defined]
        for module in (package, utils, management):
            monkeypatch.setitem(sys.modules, module.__name__, module)
