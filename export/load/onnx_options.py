"""Which options of an export apply to ONNX files of other programs."""

from __future__ import annotations

from ...core.errors import NystraError
from ..options import ExportOptions

_WHY = {
    "precision": "its types stay as they are",
    "pad_heads": "its weights stay as they are",
    "with_preprocessing": "the file has no preprocessing",
}


def refuse_options(options: ExportOptions) -> None:
    """Raise NystraError if an option would change a part of the file that has to stay."""
    changed = options.changed()
    for name, why in _WHY.items():
        if name in changed:
            raise NystraError(f"`{name}` does not apply to an ONNX file: {why}; omit it")
