"""Where the native libraries are."""

from pathlib import Path


def library_path(name: str = "nystra_onnxruntime") -> Path:
    """Stub."""
    raise FileNotFoundError(f"{name} was not built")
