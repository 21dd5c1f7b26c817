"""The display that an HDR video was graded on, and how bright it is (SMPTE ST 2086, CTA-861.3).

FFmpeg attaches both to frames, as its structures AVMasteringDisplayMetadata and
AVContentLightMetadata.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

_MASTERING = struct.Struct("=22i")
_LEVELS = struct.Struct("=2I")
_OF_COLOR, _OF_LUMINANCE = 50000, 10000
"""Units of the encoders: parts of a chromaticity, and of a candela per square meter."""

OTHERS = {
    "DYNAMIC_HDR_PLUS": "HDR10+ metadata",
    "DYNAMIC_HDR_VIVID": "HDR Vivid metadata",
    "DOVI_METADATA": "Dolby Vision metadata",
    "DOVI_RPU_BUFFER": "Dolby Vision metadata",
    "A53_CC": "closed captions",
    "STEREO3D": "3D metadata",
    "SPHERICAL": "360-degree metadata",
    "ICC_PROFILE": "color profile",
    "AMBIENT_VIEWING_ENVIRONMENT": "ambient light metadata",
    "S12M_TIMECODE": "time codes",
}
"""What else frames may hold, which the encoders do not write: FFmpeg's name and the words."""


@dataclass(frozen=True)
class Light:
    """The numbers, in the units of the encoders.

    Attributes:
        mastering: x and y of green, blue, red and white; largest and smallest luminance. Empty if
            unknown.
        levels: Largest light level of a pixel and of the mean of a frame. Empty if unknown.
    """

    mastering: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()

    @classmethod
    def of(cls, frame: Any) -> Light:
        """Return the numbers of a frame of PyAV."""
        found = {data.type.name: bytes(data) for data in frame.side_data}
        mastering: tuple[int, ...] = ()
        data = found.get("MASTERING_DISPLAY_METADATA", b"")
        if len(data) == _MASTERING.size:
            *pairs, has_primaries, has_luminance = _MASTERING.unpack(data)
            if has_primaries and has_luminance and all(pairs[1::2]):
                parts = [up / down for up, down in zip(pairs[::2], pairs[1::2], strict=True)]
                red, green, blue, white = parts[0:2], parts[2:4], parts[4:6], parts[6:8]
                colors = [round(x * _OF_COLOR) for x in (*green, *blue, *red, *white)]
                mastering = (*colors, *(round(x * _OF_LUMINANCE) for x in (parts[9], parts[8])))
        data = found.get("CONTENT_LIGHT_LEVEL", b"")
        levels = _LEVELS.unpack(data[: _LEVELS.size]) if len(data) >= _LEVELS.size else ()
        return cls(mastering, levels)

    def params(self, codec: str) -> str:
        """Return the parameters for x264 (``h264``) or x265, each after a colon."""
        names = {"h264": ("mastering-display", "cll"), "hevc": ("master-display", "max-cll")}
        mastering, levels = names[codec]
        text = ""
        if self.mastering:
            pairs = [self.mastering[place : place + 2] for place in range(0, 10, 2)]
            named = zip(("G", "B", "R", "WP", "L"), pairs, strict=True)
            text += f":{mastering}=" + "".join(f"{name}({x},{y})" for name, (x, y) in named)
        if any(self.levels):
            text += f":{levels}={self.levels[0]},{self.levels[1]}"
        return text


NO_LIGHT = Light()
"""Nothing is known."""
