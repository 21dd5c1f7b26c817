"""The path of the reference material for tests, which are skipped without it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cli", "core", "deploy", "export", "models", "plugins", "runtime")
"""The folders that the package ``nystra`` is made of."""


def shared_path(*parts: str) -> Path:
    """Return a path below the ``shared`` folder beside the checkout, or skip the test."""
    path = ROOT.parent.joinpath("shared", *parts)
    if not path.exists():
        pytest.skip(f"reference material absent: shared/{'/'.join(parts)} beside the checkout")
    return path


def hide_spandrel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the library spandrel from nystra, whether it is installed or not."""
    for user in ("registry", "spandrel.library"):
        monkeypatch.setattr(f"nystra.models.{user}.find_spec", lambda _: None)
