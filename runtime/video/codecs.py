"""The codecs that videos are written with."""

CODECS = {"h264": "libx264", "hevc": "libx265", "prores": "prores_ks", "ffv1": "ffv1"}
"""Name of a codec -> its encoder."""

RATED = ("h264", "hevc")
"""Codecs with a constant rate factor; the others have one quality, ffv1 without loss."""

WITH_ALPHA = {".mov": "prores", ".mkv": "ffv1"}
"""Suffix of a video -> the codec that keeps its alpha."""
