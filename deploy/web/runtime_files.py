"""The files of onnxruntime-web that a page loads, out of the package that npm has."""

from __future__ import annotations

import base64
import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.reading import open_regular

VERSION = "1.30.0"
"""The version of onnxruntime-web that the page is tested with."""

FILES = {
    "ort.webgpu.min.mjs": "Pf//cYEbwTo6PZWRxXyl7lc1uPXz6veJUQsCuwQK46A=",
    "ort-wasm-simd-threaded.asyncify.mjs": "PRyFmVNku2QzAvxv2Hegw7pa5yQBgV4PJIKKU9kZHig=",
    "ort-wasm-simd-threaded.asyncify.wasm": "OfnwiU1HiABIftn32+kmGEmNsyDPVcjj2Jrf+NzmWNo=",
    "ort.wasm.min.mjs": "IZ5qH8ipk4Jo0Y78o8kdMQvS9KWbvRN0TfWyt/xs7js=",
    "ort-wasm-simd-threaded.mjs": "4T9/lPxRtMpysS+use6V9Kzm37yJObxxiqvcCifEKZs=",
    "ort-wasm-simd-threaded.wasm": "M5jBDQfSKb2Rs2RUjhMODlGo5XBLiMfAg+u+t4hC3uI=",
}
"""Name of each file in the package's folder ``dist`` -> its SHA-256 in base64: three for WebGPU,
three for WebAssembly alone, which are half as large."""

_LARGEST = 64 << 20
_ARCHIVE = ".tgz"
_HOW = (
    f"`npm pack onnxruntime-web@{VERSION}` fetches it; give `onnxruntime_web` "
    f"onnxruntime-web-{VERSION}.tgz; see docs/engines.md"
)


def copy_runtime(source: Path | None, folder: Path) -> None:
    """Copy the files of onnxruntime-web, each checked to be the one that is expected.

    Args:
        source: The ``.tgz`` file of the package, or a folder: the unpacked package or its ``dist``.
        folder: Where they go; it exists.

    Raises:
        NystraError: There is no source, it lacks a file, or holds another version.
    """
    if source is None:
        raise NystraError(
            f"the page needs onnxruntime-web {VERSION}, which nystra does not include: {_HOW}"
        )
    missing = dict(FILES)
    for name, content in _contents(source):
        expected = missing.pop(name)
        if base64.b64encode(hashlib.sha256(content).digest()).decode() != expected:
            raise NystraError(
                f"{name} in {source} is not the file of onnxruntime-web {VERSION}, the version "
                f"that the page is tested with: {_HOW}"
            )
        (folder / name).write_bytes(content)
    if missing:
        raise NystraError(
            f"{source} lacks {', '.join(missing)} of onnxruntime-web {VERSION}: {_HOW}"
        )


def _contents(source: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of those of `FILES` that a package holds."""
    if source.suffix == _ARCHIVE:
        yield from _unpack(source)
        return
    folder = source / "dist" if (source / "dist").is_dir() else source
    for name in FILES:
        if (folder / name).is_file():
            with open_regular(folder / name, "the file of onnxruntime-web") as stream:
                yield name, stream.read(_LARGEST)


def _unpack(archive: Path) -> Iterator[tuple[str, bytes]]:
    members = {f"package/dist/{name}": name for name in FILES}
    with open_regular(archive, "the package") as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r:gz") as package:
                for member in package:
                    content = package.extractfile(member) if member.name in members else None
                    if content is not None:
                        yield members.pop(member.name), content.read(_LARGEST)
        except (tarfile.TarError, OSError, EOFError) as error:
            raise NystraError(f"{archive} is damaged or not a package ({error}): {_HOW}") from error
