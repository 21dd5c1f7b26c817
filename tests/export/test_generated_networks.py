"""Generated networks: an export computes the given network at every size, or is refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from generated_networks import Choice, Generated, images
from nystra.core.errors import NystraError
from nystra.core.ports.port import Port
from nystra.export import ExportOptions, Plan, export_module, mechanism, replacement_timing
from nystra.models import OwnNetwork
from nystra.runtime import Session

_ALLOWED = 1e-4
_FEW, _MANY = 10, 100
_ATTENTION = ("windows", "replaced scores")


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every replacement be measured as fast: networks as small as these would stay as given."""
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[2.0], [1.0]])


def differences(seed: int, folder: Path) -> dict[tuple[int, ...], float] | str:
    """Export the network of a seed; return how far its file is off by shape, or the refusal."""
    choice = Choice.of(seed)
    network = Generated(choice, seed).eval()
    ports = [Port("image", "image", lengths={"channels": 3})]
    if choice.inputs == "two":
        ports.append(Port("other", "reference", lengths={"channels": 3}))
    picture = Port("output", "picture", lengths={"channels": 3}, multiple=choice.scale)
    plan = Plan(default=mechanism("full")) if choice.body in _ATTENTION else Plan()
    options = ExportOptions(speed=False, plan=plan)
    own = OwnNetwork(network, ports, [picture])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = Session(export_module(own, folder / "m.onnx", options).model)
    except NystraError as error:
        return str(error)
    network = Generated(choice, seed).eval()
    found: dict[tuple[int, ...], float] = {}
    for image in images(seed):
        given = [image] if choice.inputs == "one" else [image, image.flip(3)]
        try:
            with torch.no_grad():
                expected = network(*given)
            feeds = {port.name: each.numpy() for port, each in zip(ports, given, strict=True)}
            outputs = session.run(feeds)
        except Exception:  # neither takes every size and batch
            continue
        change = (torch.from_numpy(outputs["output"]) - expected).abs().max()
        found[tuple(image.shape)] = float(change / expected.abs().max())
    return found


def check(seed: int, folder: Path) -> bool:
    """Check one network; return whether it was exported."""
    found = differences(seed, folder)
    if isinstance(found, str):
        assert found
        assert "\n" not in found, found
        return False
    assert found, f"{Choice.of(seed)}: the file takes none of the images"
    wrong = {shape: change for shape, change in found.items() if not change <= _ALLOWED}
    assert not wrong, f"seed {seed}, {Choice.of(seed)}: {wrong}"
    return True


def test_generated_networks_are_exported_right_or_refused(tmp_path: Path) -> None:
    exported = [check(seed, _folder(tmp_path, seed)) for seed in range(_FEW)]
    assert sum(exported) >= _FEW // 3, "most networks are refused: the check says little"


@pytest.mark.full
@pytest.mark.parametrize("start", range(_FEW, _MANY, _FEW))
def test_many_generated_networks(tmp_path: Path, start: int) -> None:
    exported = [check(seed, _folder(tmp_path, seed)) for seed in range(start, start + _FEW)]
    assert any(exported)


def _folder(parent: Path, seed: int) -> Path:
    folder = parent / str(seed)
    folder.mkdir()
    return folder
