"""Static quantization to 8-bit integers: layers with weights, everything else float32.

Find the layers, measure how large their inputs become on the user's images, return layers to
float32 until the images keep the budget, and write the remaining ones with onnxruntime's quantizer.
Attention, normalization, functions and residual sums keep full precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from ....core.errors import UnsupportedModelError
from ....core.json_text import json_number
from ....core.text import first_named, pluralize
from ....models.architecture import PrecisionPolicy
from ....runtime.metrics.measures import Measure, measure_for
from ...transforms import TransformInputs
from ..policies import find_int8_policy
from .budget import Selection, keep_budget
from .calibration import Feed, add_contrast, calibrate
from .layers import find_layers
from .quantizer import quantize
from .rounded_copy import make_rounded_copy

MARGIN = 1.0
"""What the inputs of the validation have to reach above its limit, in dB: it runs another network,
whose roundings differ, and which was 0.4 dB worse in SST light."""

LITTLE = 0.5
"""A smaller share of multiplications in int8 gains so little that the user is told."""


@dataclass(frozen=True)
class Quantized:
    """The result of a model.

    Attributes:
        rounded_copy: A float32 model that rounds where this one does.
        selection: The int8 layers, and those returned to float32.
        refused: Module of a layer that always stays float32 -> why.
        share: Share of the multiplications of all layers that are in int8.
        measure: The measure of the budget.
        images: Number of images that the ranges were measured on.
    """

    rounded_copy: onnx.ModelProto
    selection: Selection
    refused: Mapping[str, str]
    share: float
    measure: Measure
    images: int

    @property
    def exact(self) -> tuple[str, ...]:
        """Modules whose layers were returned to float32."""
        return tuple(layer.path for layer in self.selection.returned)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        headline = self.measure.headline
        return {
            "int8_layers": len(self.selection.layers),
            "share_of_multiplications": self.share,
            f"{headline}_against_float32": json_number(self.selection.figure),
            "images": self.images,
            "returned": {
                layer.path: {headline: json_number(layer.alone), "share": layer.share}
                for layer in self.selection.returned
            },
            "kept": dict(self.refused),
        }

    def notes(self) -> list[str]:
        """Return sentences on the int8 layers, their accuracy, and layers returned to float32."""
        measure = self.measure
        selection = self.selection
        layers = pluralize(len(selection.layers), "layer")
        done = f"{layers} in int8, {self.share:.0%} of the multiplications"
        accuracy = f"{measure.text(selection.figure)} against float32 on the calibration images"
        texts = [f"{done}: {accuracy} and on copies of higher contrast"]
        if selection.returned:
            named = [
                f"{layer.path} ({measure.text(layer.alone)} with only {layer.extent} in int8)"
                for layer in selection.returned
            ]
            count = pluralize(len(selection.returned), "layer")
            texts.append(f"{count} returned to float32: {first_named(named, 3)}")
        return texts + [f"{path} stays in float32: {why}" for path, why in self.refused.items()]

    def warnings(self) -> list[str]:
        """Return the sentence on a network of which little is in int8."""
        if self.share >= LITTLE:
            return []
        text = (
            f"int8 gains little here: {1 - self.share:.0%} of the multiplications of layers "
            "stay float32 for accuracy. Compare the file with `precision` bf16 or fp32 by "
            "`nystra bench`"
        )
        return [text]


def quantize_within(model: onnx.ModelProto, inputs: TransformInputs) -> Quantized:
    """Write 8-bit layers into a model, in place, within the accuracy limit."""
    measure = measure_for(inputs.output)
    tolerance = measure.tolerances["int8"]
    minimum = tolerance.budget if inputs.minimum is None else inputs.minimum
    if tolerance.coarsest is not None and measure.misses(minimum, tolerance.coarsest):
        minimum = tolerance.coarsest  # a file below it is refused
    policy = find_int8_policy(inputs.architecture)
    validated = () if tolerance.coarsest is None else inputs.feeds
    coarsest = (tolerance.coarsest or 0.0) + (MARGIN if measure.higher else 0.0)
    return quantize_model(model, policy, inputs.images, measure, minimum, validated, coarsest)


def quantize_model(
    model: onnx.ModelProto,
    policy: PrecisionPolicy,
    feeds: Sequence[Feed],
    measure: Measure,
    minimum: float,
    validated: Sequence[Feed] = (),
    coarsest: float = 0.0,
) -> Quantized:
    """Write 8-bit layers into a model, in place.

    Args:
        model: Traced and tidied, without bodies.
        policy: The policy of the architecture.
        feeds: Inputs of the network by name, for each calibration image.
        measure: How its output is compared.
        minimum: The headline figure, against the float32 graph, that every image has to keep, with
            higher contrast too.
        validated: As in `keep_budget`.
        coarsest: As in `keep_budget`.

    Raises:
        UnsupportedModelError: No layer can be int8, or none within the limit.
    """
    candidates = find_layers(model.graph)
    reasons = {layer.path: policy.exact(layer.path) for layer in candidates}
    refused = {path: why for path, why in reasons.items() if why is not None}
    layers = [layer for layer in candidates if layer.path not in refused]
    if not layers:
        why = "; ".join(dict.fromkeys(refused.values())) or "it has no layers of float32 weights"
        raise UnsupportedModelError(
            f"no part of this network can be int8: {why}. Use `precision` fp32; "
            "see docs/precision.md"
        )
    used = feeds if measure.few else add_contrast(feeds)  # logits have no pixel to cut off
    calibration = calibrate(model, layers, used)
    selection = keep_budget(model, layers, calibration, used, measure, minimum, validated, coarsest)
    if not selection.layers:
        worst = selection.returned[-1]
        raise UnsupportedModelError(
            f"no layer can be int8 if every image has to reach {measure.text(minimum)}: the last "
            f"layer that returned to float32, {worst.path}, gives {measure.text(worst.alone)} with "
            f"only {worst.extent} in int8. Lower `min_psnr` or use `precision` fp32; "
            "see docs/precision.md"
        )
    copied = make_rounded_copy(model, selection.layers, calibration.ranges)
    quantize(model, selection.layers, calibration.ranges)
    total = sum(calibration.products(layer) for layer in layers)
    products = [calibration.products(layer) for layer in selection.layers]
    share = sum(products) / total
    return Quantized(copied, selection, refused, share, measure, len(feeds))
