"""The cache of engines: keys, hashes, permissions, two writers, and a kill at any point."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nystra.core.errors import NystraError
from nystra.runtime.compiled import cache
from nystra.runtime.compiled.cache import Engine, EngineRecord
from nystra.runtime.compiled.model import EngineModel
from nystra.runtime.engines.build import take_engine
from runtime_models import save_upscaler


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))


def record(**changes: object) -> EngineRecord:
    base = EngineRecord(
        backend="tensorrt",
        version="11.2.1.2",
        model="m.onnx",
        hashes={"model": "a" * 64, "library": "b" * 64},
        profile={"input": ((1, 3, 8, 8),) * 3},
        device={"name": "GPU", "capability": "sm90", "cuda": 13},
    )
    return replace(base, **changes)


KEY_CHANGES: list[dict[str, object]] = [
    {"backend": "tensorrt-rtx"},
    {"version": "11.2.1.3"},
    {"hashes": {"model": "a" * 64, "library": "c" * 64}},
    {"hashes": {"model": "b" * 64, "library": "a" * 64}},
    {"hashes": {"model": "a" * 64}},
    {"hashes": {"model": "a" * 64, "library": "b" * 64, "data w": "c" * 64}},
    {"profile": {"input": ((1, 3, 8, 8), (1, 3, 8, 8), (1, 3, 8, 9))}},
    {"device": {"name": "GPU", "capability": "sm89", "cuda": 13}},
    {"device": {"name": "GPU", "capability": "sm90", "cuda": 12}},
    {"targets": ["sm86"]},
    {"flags": ["LEVEL_2"]},
]


@pytest.mark.parametrize("changes", KEY_CHANGES)
def test_the_key_depends_on_all_that_matters(changes: dict[str, object]) -> None:
    assert record(**changes).key != record().key


def test_the_key_does_not_depend_on_names() -> None:
    assert record(model="other.onnx", plugins=["x"]).key == record().key


def stored(tmp_path: Path) -> tuple[Path, EngineRecord]:
    engine = tmp_path / "engine"
    engine.write_bytes(b"engine")
    kept = record()
    return cache.store(kept, engine).path, kept


def beside(key: str) -> Path:
    """Return the record of a key."""
    folder = cache.cache_folder() / key
    folder.mkdir(exist_ok=True)
    (folder / "engine").touch()
    return folder / "engine.json"


def test_the_cache_gives_back_what_it_wrote(tmp_path: Path) -> None:
    path, kept = stored(tmp_path)
    assert cache.find(kept.key) == Engine(path, kept)
    assert list(cache.every()) == [Engine(path, kept)]
    assert stat.S_IMODE(cache.cache_folder().stat().st_mode) == 0o700
    assert cache.find("0" * 64) is None
    assert [entry.name for entry in cache.cache_folder().glob(".*")] == []


@pytest.mark.parametrize("text", ["[]", "{", '{"schema_version": 2}', '{"schema_version": 3}'])
def test_broken_records(text: str, tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    path.write_text(text)
    with pytest.raises(NystraError):
        EngineRecord.read(path)


def test_records_are_plain_json(tmp_path: Path) -> None:
    _, kept = stored(tmp_path)
    document = json.loads(beside(kept.key).read_text())
    assert document["profile"] == {"input": [[1, 3, 8, 8]] * 3}


def model_and_engine(tmp_path: Path) -> tuple[EngineModel, Path]:
    model = EngineModel.open(save_upscaler(tmp_path / "m.onnx"), "none")
    engine = tmp_path / "engine"
    engine.write_bytes(b"engine")
    kept = record(hashes=model.hashes())
    cache.store(kept, engine).copy_to(tmp_path / "out.engine")
    return model, tmp_path / "out.engine"


def test_an_engine_from_elsewhere_needs_trust(tmp_path: Path) -> None:
    model, engine = model_and_engine(tmp_path)
    with pytest.raises(NystraError, match=r"was built elsewhere.*`trust`"):
        take_engine(model, engine, trust=False)
    taken = take_engine(model, engine, trust=True)
    assert cache.find(taken.record.key) is not None
    engine.unlink()
    with pytest.raises(NystraError, match="cannot read the engine"):
        take_engine(model, engine, trust=True)


def test_an_engine_of_another_model_is_refused(tmp_path: Path) -> None:
    _, engine = model_and_engine(tmp_path)
    other = EngineModel.open(save_upscaler(tmp_path / "o.onnx", scale=3), "none")
    with pytest.raises(NystraError, match="was built from"):
        take_engine(other, engine, trust=True)


BAD_RECORDS: list[tuple[dict[str, Any], str]] = [
    ({"profile": {"input": 5}}, "profile"),
    ({"profile": {"input": [[1], [2]]}}, "profile"),
    ({"profile": {"input": [[1], [1], [10**30]]}}, "whole number of 31 digits"),
    ({"hashes": ["a"]}, "hashes"),
    ({"version": 1}, "version"),
    ({"model": "\ud800"}, "not valid JSON"),
    ({"device": {"a": json.loads("[" * 70 + "]" * 70)}}, "nested more than 64 levels deep"),
    ({"surplus": 1}, "surplus"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_RECORDS)
def test_a_bad_record_is_refused_and_breaks_no_other(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path, kept = stored(tmp_path)
    document = json.loads(beside(kept.key).read_text())
    bad = beside("0" * 64)
    bad.write_text(json.dumps({**document, **changes}))
    with pytest.raises(NystraError, match=message):
        EngineRecord.read(bad)
    assert list(cache.every()) == [Engine(path, kept)]


def test_links_to_nowhere_and_pipes_break_no_other(tmp_path: Path) -> None:
    path, kept = stored(tmp_path)
    beside("0" * 64).symlink_to(tmp_path / "nowhere")
    os.mkfifo(beside("1" * 64))
    beside("2" * 64).mkdir()
    (cache.cache_folder() / ("3" * 64)).touch()
    assert list(cache.every()) == [Engine(path, kept)]


def test_what_others_can_write_to_is_refused(tmp_path: Path) -> None:
    _, kept = stored(tmp_path)
    folder = cache.cache_folder()
    folder.chmod(0o777)
    with pytest.raises(NystraError, match="other users could put an engine into"):
        cache.find(kept.key)
    with pytest.raises(NystraError, match="other users could put an engine into"):
        list(cache.every())
    folder.chmod(0o755)  # as earlier versions made it: nobody else could write
    assert cache.find(kept.key) is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives away")
def test_the_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    _, kept = stored(tmp_path)
    folder = cache.cache_folder()
    os.chown(folder, 12345, 12345)
    with pytest.raises(NystraError, match="is not a folder of this user"):
        cache.find(kept.key)


def test_no_hard_links_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    path, kept = stored(tmp_path)
    assert cache.find(kept.key) == Engine(path, kept)


def test_a_write_that_ends_early_leaves_the_old_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = stored(tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    newer = tmp_path / "newer"
    newer.write_bytes(b"newer engine")
    with monkeypatch.context() as patch:
        patch.setattr(EngineRecord, "as_json", killed)
        with pytest.raises(KeyboardInterrupt):
            cache.store(record(), newer)
    assert cache.find(kept.key) == Engine(path, kept)
    assert path.read_bytes() == b"engine"
    cache.store(record(), newer)
    assert path.read_bytes() == b"newer engine"
    assert len(list(cache.cache_folder().iterdir())) == 1


def test_names_of_files_stay_in_their_folder() -> None:
    odd = record(model="../m.onnx", targets=["../sm86", "sm89"])
    assert Engine(Path("e"), odd).name == "m_tensorrt_.._sm86-sm89.engine"


def test_an_engine_that_vanished_is_none(tmp_path: Path) -> None:
    path, kept = stored(tmp_path)
    path.unlink()
    assert cache.find(kept.key) is None
    assert list(cache.every()) == []


def write_often(folder: str, contents: bytes, rounds: int) -> None:
    os.environ["NYSTRA_CACHE_DIR"] = str(Path(folder, "cache"))
    engine = Path(folder, contents.decode())
    engine.write_bytes(contents * 1000)
    for _ in range(rounds):
        cache.store(record(), engine)


@pytest.mark.full
def test_two_writers_and_a_reader(tmp_path: Path) -> None:
    start = multiprocessing.get_context("spawn")
    writers = [
        start.Process(target=write_often, args=(str(tmp_path), contents, 60))
        for contents in (b"a", b"b")
    ]
    for writer in writers:
        writer.start()
    reads = 0
    while any(writer.is_alive() for writer in writers):
        pair = cache.find(record().key)  # raises for a pair that does not fit together
        reads += pair is not None
        list(cache.every())
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert reads > 0
    assert cache.find(record().key) is not None
