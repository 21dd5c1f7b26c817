"""Options of several commands that are files; a command may change what they mean."""

from __future__ import annotations

from ...core.option_kinds import File

CHECKPOINT = File(None, "compare with PyTorch on this checkpoint", usual="the recorded outputs")
REFERENCES = File(None, "recorded outputs", usual="next to the model", metavar="FILE.npz")
SHEET = File(
    None, "draw photographs: input, full attention, exported, difference", metavar="OUT.png"
)
