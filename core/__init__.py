"""What all other packages use: errors, files, JSON, ports, options and metadata.

``import nystra`` turns off the telemetry of the libraries that nystra loads, before one of them is
loaded. A variable that the user has set keeps its value, unless that is the empty text.
"""

import os
import sys

VARIABLES = {
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime 1.29 and later read it when they are imported
    "RAY_USAGE_STATS_ENABLED": "0",
}

_REPORTING = "openvino_telemetry"
"""The package by which OpenVINO reports every import. There is no variable against that; where the
package cannot be imported, OpenVINO uses a stub of its own."""

for _name, _value in VARIABLES.items():
    os.environ[_name] = os.environ.get(_name) or _value
sys.modules.setdefault(_REPORTING, None)  # type: ignore[arg-type]  # as the import system has it
