"""The plugin library as a file, and in the plugin registries of real TensorRT."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from operator_tests import CUDA_OPERATORS
from programs import printed_by
from tensorrt_tools import SDKS, open_attributes, plugins, use_sdk


def test_exports_two_functions() -> None:
    lines = printed_by("nm", "-D", "--defined-only", str(plugins())).splitlines()
    assert {line.split()[-1].partition("@")[0] for line in lines} == {
        "getCreators",
        "setLoggerFinder",
    }


@pytest.mark.parametrize("name", ["nystra_trt", "nystra_trt_register10", "nystra_trt_register11"])
def test_needs_neither_tensorrt_nor_cuda(name: str) -> None:
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", printed_by("readelf", "-d", str(plugins(name))))
    known = (
        r"(libstdc\+\+|libgcc_s|libc|libm|libdl|libpthread|librt|libnystra_trt|ld-linux.*)\.so.*"
    )
    assert [library for library in needed if not re.fullmatch(known, library)] == []
    undefined = printed_by("nm", "-DC", "--undefined-only", str(plugins(name)))
    assert re.findall(r"nvinfer|cuda|getPluginRegistry", undefined) == []


def test_holds_device_code() -> None:
    listing = printed_by("cuobjdump", "--list-elf", str(plugins()))
    assert re.findall(r"sm_\d+", listing)


CREATE = """
import json, sys
from importlib import import_module
import numpy as np
module, library, requests, loading = json.loads(sys.argv[1])
trt = import_module(module)
if loading == "registry":
    registry = trt.get_plugin_registry()
    registry.load_library(library)
else:
    import ctypes
    ctypes.CDLL(library)
    registry = trt.get_plugin_registry()
types = trt.PluginFieldType
kinds = {int: (np.int32, types.INT32), float: (np.float32, types.FLOAT32)}
created = []
for name, attributes in requests:
    creator = registry.get_creator(name, "1", "")
    fields = []
    for key, value in attributes.items():
        numpy_type, field_type = kinds[type(value)]
        fields.append(trt.PluginField(key, np.array([value], numpy_type), field_type))
    collection = trt.PluginFieldCollection(fields)
    created.append(creator.create_plugin(name, collection, trt.TensorRTPhase.BUILD) is not None)
print(json.dumps(created))
"""


def _create(
    sdk: str, library: Path, loading: str, requests: list[tuple[str, dict[str, int | float]]]
) -> tuple[list[bool], str]:
    module = {"10": "tensorrt", "11": "tensorrt", "rtx": "tensorrt_rtx_bindings"}[sdk]
    argument = json.dumps([module, str(library), requests, loading])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CREATE, argument]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def _requests() -> list[tuple[str, dict[str, int | float]]]:
    """A good node of each operator, then one with too many iterations."""
    requests = []
    for name in CUDA_OPERATORS:
        good = open_attributes(name)
        numbers = {key: value for key, value in good.items() if not isinstance(value, str)}
        requests += [(name, numbers), (name, {**numbers, "iterations": 99})]
    return requests


@pytest.mark.parametrize("sdk", SDKS)
def test_registries_take_the_library(sdk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_sdk(sdk, monkeypatch)
    created, words = _create(sdk, plugins(), "registry", _requests())
    assert created == [True, False] * len(CUDA_OPERATORS)
    assert len(
        re.findall(r"^nystra: Nystra\w+ \(Nystra\w+\): attribute iterations is 99; ", words, re.M)
    )


@pytest.mark.parametrize("sdk", ["10", "11"])
def test_shims_register_when_loaded(sdk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_sdk(sdk, monkeypatch)
    created, _ = _create(sdk, plugins(f"nystra_trt_register{sdk}"), "dlopen", _requests())
    assert created == [True, False] * len(CUDA_OPERATORS)


def test_a_shim_without_its_tensorrt_says_so() -> None:
    code = f"import ctypes; ctypes.CDLL({str(plugins('nystra_trt_register11'))!r})"
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    if done.stderr:
        assert "libnvinfer.so.11 has no plugin registry" in done.stderr
    else:
        assert (
            shutil.which("trtexec") or Path("/usr/lib/x86_64-linux-gnu/libnvinfer.so.11").exists()
        )
