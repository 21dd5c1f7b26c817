"""Every reader of untrusted files, on damaged files: a result, or one NystraError.

Seeds are fixed. A warning is an error here too: it would be a second line on the terminal.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nystra.core.errors import NystraError
from nystra.core.metadata import without_provenance
from nystra.export.attention.plan import read_plan
from nystra.models import load
from nystra.runtime.checking.baseline import read_baseline
from nystra.runtime.checking.validation import find_allowed_differences
from nystra.runtime.compiled.cache import EngineRecord
from nystra.runtime.images.images import read_image
from nystra.runtime.model.external_data import external_files, weights_digest
from nystra.runtime.model.manifest import Manifest
from nystra.runtime.model.model_facts import parse_facts
from nystra.runtime.model.onnx_graph import count_nodes, domain_nodes, read_facts, read_inputs
from nystra.runtime.model.references import ReferenceCase, read_references, write_references
from runtime_models import nystra_metadata, save_operator, save_upscaler
from small_swinir import state_of

SECONDS = 4.0
"""Of a reader before a release: thirteen of them are done in a minute."""

SLOWEST = 20.0
"""Of one file, on a busy machine."""

TOKENS = [
    *(b"1" + b"0" * 400, b"-1", b"1e400", b"NaN", b"Infinity", b"-0.0", b"null", b"true", b'""'),
    *(b"[" * 70 + b"]" * 70, b"{}", b'"\\ud800"', b'"\\u001b[2J"', b"\xff\xfe", b"1000000000"),
]


@dataclass(frozen=True)
class Reader:
    """A reader and a file it can read."""

    suffix: str
    good: Callable[[Path], None]
    read: Callable[[Path], object]


def damaged(content: bytes, seed: int) -> bytes:
    """Return a file with one to four faults: bits, bytes, numbers, pieces cut, copied or moved."""
    rng = np.random.default_rng(seed)
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        place = int(rng.integers(max(len(data), 1)))
        length = int(rng.integers(1, 17))
        kind = int(rng.integers(7))
        if kind == 0 and data:
            data[place] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            data[place : place + length] = rng.integers(0, 256, length, np.uint8).tobytes()
        elif kind == 2:
            data[place : place + length] = bytes([(0, 0x7F, 0x80, 0xFF)[seed % 4]]) * length
        elif kind == 3:
            del data[place : place + length]
        elif kind == 4:
            del data[place:]
        elif kind == 5:
            data[place:place] = data[:length] * 3
        else:
            data = replaced_number(data, TOKENS[int(rng.integers(len(TOKENS)))], rng)
    return bytes(data)


def replaced_number(data: bytearray, token: bytes, rng: np.random.Generator) -> bytearray:
    """Replace one of the numbers that the file holds as text."""
    places = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
    if places:
        place = places[int(rng.integers(len(places)))]
        data[place : place + 1] = token
    return data


def save_torch(path: Path) -> None:
    torch.save({"params": state_of(window_size=4, embed_dim=8)}, path)


def save_tensors(path: Path) -> None:
    hyper = {"nystra": json.dumps({"window_size": 4, "license": "CC0-1.0"})}
    save_file(state_of(window_size=4, embed_dim=8), path, metadata=hyper)


def save_references(path: Path) -> None:
    image = np.linspace(0, 1, 48, dtype=np.float32).reshape(1, 3, 4, 4)
    case = ReferenceCase({"input": image}, {"output": image})
    write_references(path, [case], {"tolerances": [1e-4], "mean_tolerances": [1e-4]})


def save_image(path: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def save_json(document: object) -> Callable[[Path], None]:
    return lambda path: path.write_text(json.dumps(document)) and None


def save_metadata(path: Path) -> None:
    plan = {"schema_version": 1, "default": {"mechanism": "full"}, "sites": {}}
    path.write_text(json.dumps(nystra_metadata(**{"nystra.attention": json.dumps(plan)})))


def read_metadata(path: Path) -> object:
    """Read the entries of a model whose metadata are the strings of a damaged JSON file."""
    try:
        entries = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    texts = (
        {str(key): str(value) for key, value in entries.items()}
        if isinstance(entries, dict)
        else {}
    )
    tensors = read_inputs(path.with_name("model.onnx"))
    return parse_facts(texts, tensors, []), without_provenance(texts)


def read_onnx(path: Path) -> object:
    nodes = count_nodes(path), domain_nodes(path, "nystra")
    return read_facts(path), nodes, external_files(path), weights_digest(path)


def read_recorded(path: Path) -> object:
    references = read_references(path)
    return find_allowed_differences(references), references.digest()


BASELINE = {
    "schema_version": 1,
    "model": "m.onnx",
    "items": {"psnr": {"accepted": 90.0, "tolerance": 6.0}},
    "metadata": {"scale": "2"},
    "digests": {"weights": "ab" * 32, "references": "cd" * 32},
    "quality": {"channel": "y", "crop_border": 2, "images": ["a.png"]},
    "speed": {"against": "o.onnx", "size": [128, 128]},
}
PLAN = {
    "schema_version": 1,
    "source_sha256": "ab" * 32,
    "default": {"mechanism": "nystra", "landmarks": [4, 4], "iterations": 6},
    "sites": {"layers.0.attn": {"mechanism": "full"}},
}
RECORD = EngineRecord(profile={"x": ((1,), (2,), (3,))})
READERS = {
    "safetensors": Reader(".safetensors", save_tensors, load),
    "torch": Reader(".pth", save_torch, load),
    "references": Reader(".npz", save_references, read_recorded),
    "onnx": Reader(".onnx", lambda path: save_operator(path, body=True) and None, read_onnx),
    "weights": Reader(".onnx", lambda path: save_upscaler(path) and None, read_onnx),
    "png": Reader(".png", save_image, read_image),
    "tiff": Reader(".tif", save_image, read_image),
    "jpeg": Reader(".jpg", save_image, read_image),
    "plan": Reader(".json", save_json(PLAN), read_plan),
    "baseline": Reader(".json", save_json(BASELINE), read_baseline),
    "manifest": Reader(".json", lambda path: Manifest("m.onnx").write(path), Manifest.read),
    "record": Reader(
        ".json",
        lambda path: path.write_bytes(RECORD.as_json()) and None,
        EngineRecord.read,
    ),
    "metadata": Reader(".json", save_metadata, read_metadata),
}


def fuzzed(reader: Reader, folder: Path, count: int, seconds: float) -> dict[str, int]:
    """Read damaged files until the count or the time is reached; return the outcomes."""
    save_upscaler(folder / "model.onnx", metadata=nystra_metadata())
    path = folder / f"file{reader.suffix}"
    reader.good(path)
    reader.read(path)
    content = path.read_bytes()
    tally = {"read": 0, "refused": 0}
    end = time.monotonic() + seconds
    for seed in range(count):
        begin = time.monotonic()
        if begin > end:
            break
        path.write_bytes(damaged(content, seed))
        try:
            reader.read(path)
            tally["read"] += 1
        except NystraError as error:
            tally["refused"] += 1
            if not str(error):
                pytest.fail(f"seed {seed} is refused without a word")
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        if time.monotonic() - begin > SLOWEST:
            pytest.fail(f"seed {seed} took {time.monotonic() - begin:.0f} s")
    return tally


@pytest.mark.parametrize("name", READERS)
def test_some_damaged_files(name: str, tmp_path: Path) -> None:
    tally = fuzzed(READERS[name], tmp_path, 15, SECONDS)
    assert sum(tally.values()) > 0


@pytest.mark.release
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tally = fuzzed(READERS[name], tmp_path, 20_000, SECONDS)
    record_property(name, tally)
    print(f"{name}: {tally}")  # noqa: T201  the counts of studies/measurements/security.md
    assert min(tally.values()) > 0


def test_a_fault_is_always_the_same() -> None:
    content = io.BytesIO(b"some file 123").getvalue()
    assert damaged(content, 7) == damaged(content, 7)
    assert any(damaged(content, seed) != content for seed in range(3))
