"""An ONNX file of another program as a loaded network, compared with the file in onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...core.errors import NystraError, UnsupportedModelError
from ...core.files.reading import file_sha256
from ...models.checkpoints.checkpoint import Checkpoint
from ...models.facts import Facts
from ...models.loading import LoadedModel
from ...runtime.session import Session
from ..attention.site import common_window
from ..onnx_models.facts import facts_of
from ..onnx_models.file_network import FileNetwork, read_file
from ..onnx_models.finding import cut_attention
from ..onnx_models.network import NodeError
from ..onnx_models.operators.values import limited_to
from .images import validation_feeds

_ALLOWED = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference between a file in onnxruntime and its PyTorch form, relative to the largest
value, by the coarsest type of the file."""

_SMALL = (1, 3, 64, 64)
"""Default shape of an image, if the file has no fixed one."""


def load_onnx(path: Path, hyper: Mapping[str, Any]) -> LoadedModel:
    """Read a file of another program; its attention is found and becomes sites.

    Args:
        path: The file.
        hyper: Hyper-parameters, which an ONNX file does not accept.

    Raises:
        NystraError: The file is damaged or hostile, or hyper-parameters are given.
        UnsupportedModelError: A part of it is not supported, or its values in PyTorch differ.
    """
    if hyper:
        raise NystraError(
            f"`{next(iter(hyper))}` does not apply to an ONNX file, whose graph is complete; "
            "omit it"
        )
    network = read_file(path)
    taken, given = len(network.graph.inputs), len(network.graph.outputs)
    if (taken, given) != (1, 1):
        raise UnsupportedModelError(
            f"{path} has {taken} inputs and {given} outputs: expected one image as the input "
            "and one output; export it again with these only; see docs/own.md"
        )
    try:
        _try_small(network)
        facts, sizes = facts_of(path)
        warnings = (*network.source.notes, *sizes, *cut_attention(network, facts))
        facts = replace(facts, window=common_window(network))
        _compare(network, facts)
    except NodeError as error:
        raise UnsupportedModelError(
            f"{path} cannot be computed: {error}; see docs/own.md"
        ) from error
    digest = file_sha256(path, "the model")
    checkpoint = Checkpoint(path, digest, {})
    return LoadedModel(network, facts, {}, checkpoint, warnings, unserved=warnings)


def _try_small(network: FileNetwork) -> None:
    """Run a file's network on a small image, before onnxruntime opens the file.

    Raises:
        NodeError: It declares a result that is too large; other failures at this size are ignored.
    """
    (value,) = (v for v in network.source.model.graph.input if v.name == network.graph.inputs[0])
    sides = value.type.tensor_type.shape.dim
    shape = [side.dim_value or usual for side, usual in zip(sides, _SMALL, strict=False)]
    try:
        with torch.inference_mode(), limited_to(math.prod(shape[2:])):
            network(torch.zeros(shape))
    except NodeError as error:
        if error.too_large:
            raise


def _compare(network: FileNetwork, facts: Facts) -> None:
    """Compare the network with its file in plain onnxruntime, at the sizes of the validation.

    Raises:
        UnsupportedModelError: They differ.
    """
    path = network.source.path
    session = Session(path, library=None)
    types = {tensor.dtype for tensor in network.constants().values()}
    allowed = max(_ALLOWED.get(dtype, 0.0) for dtype in {torch.float32, *types, *network.types})
    for feeds in validation_feeds(facts):
        expected = next(iter(session.run(feeds).values())).astype(np.float32)
        with torch.inference_mode():
            got = network(*(torch.from_numpy(array) for array in feeds.values())).numpy()
        scale = max(float(np.abs(expected).max(initial=0.0)), 1e-30)
        same = got.shape == expected.shape
        difference = float(np.abs(got - expected).max(initial=0.0)) / scale if same else np.inf
        if not difference <= allowed:
            shape = "x".join(map(str, next(iter(feeds.values())).shape))
            raise UnsupportedModelError(
                f"{path}, converted to PyTorch, differs from onnxruntime by {difference:.0e} of "
                f"its largest value at {shape}: it cannot be exported; see docs/own.md"
            )
