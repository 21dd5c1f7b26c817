"""The folder of a release is an index that pip installs from, on a disk and from a server."""

from __future__ import annotations

import hashlib
import http.server
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shared import ROOT

METADATA = "Metadata-Version: 2.4\nName: nystra\nVersion: 9.8.7\nRequires-Python: >=3.10\n"
WHEELS = ("manylinux2014_x86_64", "macosx_11_0_arm64", "win_amd64", "manylinux2014_aarch64", "any")


def write_wheel(path: Path) -> None:
    """Write a wheel of nystra that holds one module."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("nystra/__init__.py", '__version__ = "9.8.7"\n')
        archive.writestr("nystra-9.8.7.dist-info/METADATA", METADATA)
        tag = path.stem.partition("-9.8.7-")[2]
        wheel = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n"
        archive.writestr("nystra-9.8.7.dist-info/WHEEL", wheel)
        archive.writestr("nystra-9.8.7.dist-info/RECORD", "")


def index(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / ".ci/release", folder, "--index-only"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "a release"
    place.mkdir()
    for platform in WHEELS:
        write_wheel(place / f"nystra-9.8.7-py3-none-{platform}.whl")
    (place / "nystra-9.8.7.tar.gz").write_bytes(b"a source distribution")
    done = index(place)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """The address of a server of the folder's files."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{service.server_port}"
        service.shutdown()


def install(place: str, target: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-cache-dir", *more]
    command += ["--target", str(target), "--index-url", f"{place}/simple", "nystra"]
    words = {**os.environ, "PIP_QUIET": "0"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=words)


def assert_installed(done: subprocess.CompletedProcess[str], target: Path) -> None:
    assert done.returncode == 0, done.stderr
    assert "9.8.7" in (target / "nystra/__init__.py").read_text()
    assert ".whl.metadata" in done.stdout  # pip read that, and no other platform's wheel
    assert "win_amd64" not in done.stdout


@pytest.mark.full
def test_pip_installs_from_the_folder(folder: Path, tmp_path: Path) -> None:
    assert_installed(install(folder.as_uri(), tmp_path / "there"), tmp_path / "there")


@pytest.mark.full
def test_pip_installs_from_a_server_of_files(server: str, tmp_path: Path) -> None:
    assert_installed(install(server, tmp_path / "there"), tmp_path / "there")


@pytest.mark.full
def test_pip_refuses_a_file_that_was_changed(folder: Path, tmp_path: Path) -> None:
    for wheel in folder.glob("*.whl"):
        wheel.write_bytes(wheel.read_bytes() + b"\0")
    done = install(folder.as_uri(), tmp_path / "there")
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


@pytest.mark.full
def test_the_workflow_installs_from_the_folder(folder: Path, tmp_path: Path) -> None:
    """By the step of its own words, in which pip takes a URL: new versions end at `dist/simple`."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    [step] = [step["run"] for step in jobs["platforms"]["steps"] if "--index-url" in str(step)]
    folder.rename(tmp_path / "dist")
    commands = f'python() {{ {sys.executable} "$@"; }}\n{step}'
    words = {**os.environ, "PIP_QUIET": "0", "PIP_TARGET": str(tmp_path / "there")}
    done = subprocess.run(
        ["bash", "-euxc", commands],
        capture_output=True,
        text=True,
        check=False,
        env=words,
        cwd=tmp_path,
    )
    assert re.search(r"--index-url file:///\S+/dist/simple nystra", done.stderr), done.stderr
    assert_installed(done, tmp_path / "there")


def test_every_file_stands_in_the_index_with_its_hash(folder: Path) -> None:
    page = (folder / "simple/nystra/index.html").read_text()
    links = dict(re.findall(r'href="\.\./\.\./([^"#]+)#sha256=(\w+)"', page))
    files = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    assert links == {file.name: digest(file) for file in files}
    listed = [line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()]
    assert {name: sha256 for sha256, name in listed} == links
    assert 'href="nystra/"' in (folder / "simple/index.html").read_text()


def test_what_pip_reads_of_a_wheel_is_its_metadata(folder: Path) -> None:
    page = (folder / "simple/nystra/index.html").read_text()
    for wheel in folder.glob("*.whl"):
        beside = folder / f"{wheel.name}.metadata"
        assert beside.read_text() == METADATA
        [line] = [line for line in page.splitlines() if f">{wheel.name}<" in line]
        assert f'data-core-metadata="sha256={digest(beside)}"' in line
        assert 'data-requires-python="&gt;=3.10"' in line


def test_files_of_two_versions_are_refused(folder: Path) -> None:
    write_wheel(folder / "nystra-9.8.6-py3-none-any.whl")
    done = index(folder)
    assert done.returncode == 1
    assert "files of one version of nystra, found ['9.8.6', '9.8.7']" in done.stderr


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert index(tmp_path).returncode == 1


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
