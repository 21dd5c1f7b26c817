"""The codecs that videos are written with."""

CODECS = {"h264": "libx264", "hevc": "libx265"}
"""Name of a codec -> its encoder."""
