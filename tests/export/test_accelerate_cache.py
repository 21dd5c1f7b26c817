"""The cache of accelerated modules, and the key of a module in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nystra.core.files import file_cache
from nystra.core.files.user_cache import read_figures, remember_figures
from nystra.core.ports.port import Port
from nystra.models.own.fingerprint import hash_computation


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache/accelerated"


def test_entries_of_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(key: str, content: bytes) -> Path:
        return file_cache.file_of(
            "accelerated", key, lambda path: path.write_bytes(content) and None
        )

    first = entry("a", b"first")
    assert entry("a", b"other").read_bytes() == b"first"
    entry("b", b"second")
    (cache / "b.json").replace(cache / "a.json")
    assert entry("a", b"third").read_bytes() == b"third", "the record of another key"
    (cache / "a.json").write_text("{")
    assert entry("a", b"fourth").read_bytes() == b"fourth", "no record"
    outside = cache.parent / "outside.onnx"
    outside.write_bytes(b"fourth")
    kept = entry("a", b"")
    kept.unlink()
    kept.symlink_to(outside)
    assert entry("a", b"fifth").read_bytes() == b"fifth", "a link"
    monkeypatch.setattr(file_cache, "MOST_BYTES", 9)
    assert entry("c", b"latest").read_bytes() == b"latest"
    assert sum(path.stat().st_size for path in cache.glob("*.onnx")) <= 9
    assert not first.exists()
    with monkeypatch.context() as changed:
        changed.setenv("NYSTRA_CACHE_DIR", str(outside))
        assert entry("c", b"no folder").read_bytes() == b"no folder"
        assert read_figures("c") == {}
        assert not remember_figures("c", "a module", {"torch": 0.5})
    with pytest.raises(ZeroDivisionError):
        file_cache.file_of("accelerated", "d", lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    assert not list(cache.glob("d*"))


@pytest.mark.parametrize(
    "damage", [("0.5", '"0.5"'), ("0.5", "-0.5"), ('"c"', '"d"'), ("figures", "numbers"), ("}", "")]
)
def test_figures_are_remembered(cache: Path, damage: tuple[str, str]) -> None:
    assert remember_figures("c", "a module", {"torch": 0.5})
    assert read_figures("c") == {"torch": 0.5}
    path = cache.parent / "figures/c.json"
    path.write_text(path.read_text().replace(*damage))
    assert read_figures("c") == {}


class Scaled(nn.Module):
    def __init__(self, by: float, hidden: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.by, self.hidden = nn.Conv2d(3, 3, 1), by, torch.tensor([hidden])

    def forward(self, image: Tensor) -> Tensor:
        return self.conv(image) * self.by + self.hidden


class Larger(Scaled):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image) if image.shape[-1] < 1000 else image


def test_a_key_has_the_code_and_constants_that_are_no_weights() -> None:
    ports = (Port("input", "image", lengths={"channels": 3}),)
    hashes = [
        hash_computation(module.eval(), ports, [torch.zeros(1, 3, 8, 8)])
        for module in (Scaled(2.0), Scaled(3.0), Scaled(2.0, 1.0), Larger(2.0), Scaled(2.0))
    ]
    assert len(set(hashes)) == 4
    assert hashes[0] == hashes[-1]
