"""PyAV, imported on use, and the conversion of its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from ...core.errors import BackendUnavailableError, NystraError
from ...core.installation import not_installed


def load_av() -> ModuleType:
    """Return the module ``av``.

    Raises:
        BackendUnavailableError: It is not installed, or too old.
    """
    try:
        import av
    except ImportError as error:
        raise BackendUnavailableError(
            f"{not_installed('PyAV, which video files need,', 'video')}, or give a folder of frames"
        ) from error
    if int(av.__version__.partition(".")[0]) < 16:
        raise BackendUnavailableError(
            f"video files need PyAV 16 or newer, found {av.__version__}: pip install -U av"
        )
    return av


@contextmanager
def av_errors(what: str, advice: str) -> Iterator[None]:
    """Turn PyAV's errors in the block into a `NystraError`.

    Args:
        what: What went wrong, as the beginning of a sentence: ``the video a.mp4 is damaged``.
        advice: What to do.

    Raises:
        NystraError: The block raised an error of PyAV.
    """
    av = load_av()
    try:
        yield
    except (av.error.FFmpegError, ValueError) as error:  # ValueError: what PyAV finds by itself
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise NystraError(f"{what}: {reason}. {advice}") from error
