"""The engines of the table: one row per way of running a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRECISIONS = ("f32", "bf16", "int8")
"""What a network is computed in; engines are compared with those of the same."""

LINEAR = "linear"
"""The group of rows with linear attention, which is another network."""


@dataclass(frozen=True)
class Engine:
    """A way of running a network.

    Attributes:
        label: In the table.
        worker: Its module in `workers`.
        environment: In `environments.ENVIRONMENTS`.
        file: That it opens, or that it converts: a row of `files.FORMS`.
        group: The precision; engines of a group take turns.
        converted: The name of the file that it makes of that, or None.
        any_size: One file or module serves images of any size.
        request: What else its worker is told.
    """

    label: str
    worker: str
    environment: str
    file: str
    group: str = "f32"
    converted: str | None = None
    any_size: bool = False
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether it is nystra."""
        return self.environment == "nystra" and self.worker == "nystra_session"


def _torch(label: str, group: str, environment: str = "nystra", **request: Any) -> Engine:
    return Engine(label, "torch_module", environment, "module", group, None, True, request)


def _openvino(group: str, precision: str, label: str, converted: str | None = None) -> Engine:
    request = {"precision": precision}
    return Engine(label, "openvino_alone", "openvino", "plain", group, converted, False, request)


def _nystra(label: str, file: str, group: str, backend: str, precision: str = "f32") -> Engine:
    request = {"backend": backend, "precision": precision}
    return Engine(label, "nystra_session", "nystra", file, group, None, True, request)


ENGINES = {
    "eager": _torch("PyTorch eager", "f32"),
    "inductor": _torch("PyTorch inductor, freezing, max-autotune", "f32", compiler="inductor"),
    "zentorch": _torch("zentorch", "f32", "zentorch", compiler="zentorch"),
    "onnxruntime": Engine("onnxruntime, plain export", "plain_onnxruntime", "onnxruntime", "plain"),
    "ep-openvino": Engine(
        "onnxruntime with onnxruntime-ep-openvino",
        "plain_onnxruntime",
        "ep-openvino",
        "plain",
        request={"provider": "onnxruntime_ep_openvino"},
    ),
    "openvino": _openvino("f32", "f32", "OpenVINO, plain export"),
    "ncnn": Engine("ncnn by pnnx", "ncnn_by_pnnx", "ncnn", "plain", converted="ncnn"),
    "ncnn-portable": Engine(
        "ncnn by pnnx, nystra's portable file",
        "ncnn_by_pnnx",
        "ncnn",
        "portable",
        converted="ncnn-portable",
    ),
    "executorch": Engine(
        "ExecuTorch, XNNPACK", "executorch_xnnpack", "executorch", "module", converted="net.pte"
    ),
    "litert": Engine("LiteRT by onnx2tf", "litert", "litert", "plain", converted="litert"),
    "litert-portable": Engine(
        "LiteRT by onnx2tf, nystra's portable file",
        "litert",
        "litert",
        "portable",
        converted="litert-portable",
    ),
    "nystra-ort": _nystra("**nystra**, `ort-cpu`", "full", "f32", "ort-cpu"),
    "nystra-openvino": _nystra("**nystra**, `openvino`", "full", "f32", "openvino"),
    "eager-bf16": _torch("PyTorch eager, autocast", "bf16", precision="bf16"),
    "inductor-bf16": _torch(
        "PyTorch inductor, autocast, freezing, max-autotune",
        "bf16",
        compiler="inductor",
        precision="bf16",
    ),
    "zentorch-bf16": _torch(
        "zentorch, autocast", "bf16", "zentorch", compiler="zentorch", precision="bf16"
    ),
    "openvino-bf16": _openvino("bf16", "bf16", "OpenVINO, plain export"),
    "nystra-openvino-bf16": _nystra("**nystra**, `openvino`", "full", "bf16", "openvino", "bf16"),
    "openvino-int8": _openvino("int8", "f32", "OpenVINO, int8 by NNCF", "nncf.xml"),
    "openvino-int8-bf16": _openvino("int8", "bf16", "OpenVINO, int8 by NNCF, bf16", "nncf.xml"),
    "nystra-ort-int8": _nystra("**nystra**, `ort-cpu`", "int8", "int8", "ort-cpu"),
    "nystra-openvino-int8": _nystra("**nystra**, `openvino`", "int8", "int8", "openvino"),
    "nystra-openvino-int8-bf16": _nystra(
        "**nystra**, `openvino`, bf16", "int8", "int8", "openvino", "bf16"
    ),
    "nystra-ort-linear": _nystra(
        "**nystra**, `--attn cluster`, `ort-cpu`", "cluster", LINEAR, "ort-cpu"
    ),
    "nystra-openvino-linear": _nystra(
        "**nystra**, `--attn cluster`, `openvino`, bf16", "cluster", LINEAR, "openvino", "bf16"
    ),
}
"""By name."""

GROUPS = (*PRECISIONS, LINEAR)
