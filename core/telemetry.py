"""Turns off the telemetry of the libraries that nystra loads, before one of them is loaded.

``import nystra`` runs this first. A variable that the user has set keeps its value, unless that is
the empty text.
"""

from __future__ import annotations

import os
import sys

VARIABLES = {
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime 1.29 and later read it when they are imported
    "RAY_USAGE_STATS_ENABLED": "0",
}

_REPORTING = "openvino_telemetry"
"""The package by which OpenVINO reports every import. There is no variable against that; where the
package cannot be imported, OpenVINO uses a stub of its own."""


def turn_off() -> None:
    """Set the variables, and make the package of OpenVINO one that cannot be imported."""
    for name, value in VARIABLES.items():
        os.environ[name] = os.environ.get(name) or value
    sys.modules.setdefault(_REPORTING, None)  # type: ignore[arg-type]  # as the import system has it
