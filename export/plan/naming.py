"""The name of a model file: ``{name}_{scale}x_{dims}_{precision}_op{N}_{attention}.onnx``.

Before the suffix follow marks of other differences: ``_prepares`` if it resizes and normalizes
images itself, ``_w8`` if the window is not the trained one, ``_inline`` and ``_bare`` (no bodies)
for the form of the operators, ``_portable`` for the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...core.errors import NystraError
from ...core.ports.port import join_sides
from ...models.facts import Facts
from ..attention.as_trained.parameters import AsTrained
from ..attention.mechanism import Mechanism


def attention_label(resolved: Mapping[str, Mechanism]) -> str:
    """Return ``full``, ``nystra``, ...: the mechanism of the sites, or ``mixed``.

    A network without any is as it was trained.
    """
    used = {site.name for site in resolved.values()} or {AsTrained.name}
    if len(used) == 1:
        return used.pop()
    return "mixed"


def output_path(
    output: Path,
    source: Path,
    facts: Facts,
    resolved: Mapping[str, Mechanism],
    opset: int,
    precision: str = "fp32",
    suffixes: Sequence[str] = (),
) -> Path:
    """Return the path of the model file.

    Args:
        output: A file that ends in ``.onnx``, or a folder.
        source: The checkpoint.
        facts: Facts of the network.
        resolved: Mechanism of every site.
        opset: Opset of the file.
        precision: As ``nystra.precision`` says it.
        suffixes: Marks of other differences.

    Raises:
        NystraError: The name is that of another kind of file.
    """
    if output.suffix == ".onnx" and not output.is_dir():
        return output
    if output.suffix and not output.is_dir():
        raise NystraError(
            f"the output {output} ends in {output.suffix}, expected a .onnx file, or a folder, "
            "which has to exist if its name has a dot"
        )
    stem = source.stem
    first = facts.inputs[0]
    dims = "dynamic" if first.free_axes() else join_sides(first.shape({}))
    parts = [stem, f"{facts.scale}x", dims, precision, f"op{opset}", attention_label(resolved)]
    return output / f"{'_'.join([*parts, *suffixes])}.onnx"
