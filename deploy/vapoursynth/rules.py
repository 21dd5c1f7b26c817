"""What the plug-in vs-mlrt of VapourSynth requires of a model file."""

from __future__ import annotations

from ...core.files.reading import utf8_path
from ...core.ports.port import join_sides
from ...runtime.session import Session
from ..host_model import host_problems

_SIDE = 64


def vapoursynth_problems(session: Session) -> list[str]:
    """Return why vs-mlrt cannot run a file; empty if it can.

    In addition to what every host requires, the output has to have a size that onnxruntime knows
    before a run, once that of the input is fixed, in whole multiples of it.

    Args:
        session: The file, in a backend of onnxruntime or another.
    """
    if problems := host_problems(session):
        return problems
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_mem_reuse = False  # of no use here, and slow where bodies are many
    shape = session.inputs[0].shape
    for axis, length in enumerate(shape):
        if not isinstance(length, int):
            name = str(length)
            options.add_free_dimension_override_by_name(name, _SIDE if axis > 1 else 1)
    bare = onnxruntime.InferenceSession(
        utf8_path(session.path, "the model", "onnxruntime"),
        options,
        providers=["CPUExecutionProvider"],
    )
    sides = [length if isinstance(length, int) else _SIDE for length in shape[2:]]
    output = bare.get_outputs()[0].shape[2:]
    size = join_sides(sides)
    if not all(isinstance(length, int) for length in output):
        return [f"with an input of {size} its output is {join_sides(output)}, not numbers"]
    if any(large % small for large, small in zip(output, sides, strict=True)):
        return [
            f"for {size} pixels it returns {join_sides(output)}, which is not an integer multiple"
        ]
    return []
