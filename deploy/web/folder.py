"""Writing the folder of a page that restores images in the browser."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.reading import is_there
from ...core.files.writing import atomic_folder
from ...runtime.model.onnx_header import read_onnx_header
from ...runtime.model.references import read_references
from ...runtime.session import Session
from ..host_model import host_problems
from ..model_name import is_model_name
from .options import WebOptions
from .runtime_files import VERSION, copy_runtime

PAGE = Path(__file__).with_name("page")
"""The page; its ``.js`` files are the code of the npm package too, `_PACKAGE` of that alone."""

_PARTS = ("*.html", "*.css", "*.svg", "*.js")
_PACKAGE = "index.js"
_PRECISION = "fp32"
"""The precision of the files that the page was tested with."""

_README = """# {name} in the browser

Written by `nystra deploy web`. Start `python -m http.server` in this folder, or any other server
of files, and open its address, http://localhost:8000. Browsers start no worker from `file:`
addresses.

| file | what |
| --- | --- |
| `{model}` | the network |
| {references} |
| `index.html`, `*.js`, `style.css`, `icon.svg` | the page, of nystra (Apache-2.0) |
| `ort/` | onnxruntime-web {version}, of Microsoft (MIT, `ort/LICENSE`) |

The page makes no requests to other hosts, and sends images nowhere. It runs on WebGPU if the
browser supports it and the recorded references are reproduced, otherwise on the CPU by WebAssembly,
and shows which. `?provider=wasm` at the end of its address skips WebGPU. WebAssembly uses
one thread unless the server sends `Cross-Origin-Opener-Policy: same-origin` and
`Cross-Origin-Embedder-Policy: require-corp`.
"""


def write_page(model: Path, folder: Path, options: WebOptions) -> Path:
    """Write a web page with a model file: a folder for any static file server, atomically.

    Args:
        model: An ONNX file of one size and standard operators; references next to it are included.
        folder: The folder to write.
        options: The options.

    Returns:
        The folder.

    Raises:
        NystraError: The page cannot run the file, a file of onnxruntime-web is missing, or the
            folder exists already.
        BackendUnavailableError: No installed backend can load the file to read its inputs.
    """
    check_model(model)
    recorded = model.with_suffix(".npz")
    has_references = is_there(recorded, "the references")
    if has_references:
        read_references(recorded)
    stem = model.stem if is_model_name(model.stem) else "model"
    name, references = f"{stem}.onnx", f"{stem}.npz" if has_references else None
    with atomic_folder(folder, overwrite=options.overwrite) as page:
        for file in sorted(file for part in _PARTS for file in PAGE.glob(part)):
            if file.name != _PACKAGE:
                shutil.copyfile(file, page / file.name)
        shutil.copyfile(model, page / name)
        if references is not None:
            shutil.copyfile(recorded, page / references)
        listing = {"model": name, "references": references}
        (page / "model.json").write_text(json.dumps(listing) + "\n", encoding="utf-8")
        text = _README.format(name=stem, model=name, version=VERSION, references=_row(references))
        (page / "README.md").write_text(text, encoding="utf-8")
        (page / "ort").mkdir()
        shutil.copyfile(PAGE / "ort_license.txt", page / "ort" / "LICENSE")
        copy_runtime(options.onnxruntime_web, page / "ort")
    return folder


def check_model(path: Path) -> None:
    """Refuse a model file that the page would refuse.

    Raises:
        NystraError: It takes something else than one image of one size, or holds what
            onnxruntime-web does not run.
    """
    session = Session(path, library="none")
    problems = host_problems(session) or _problems(session)
    if problems:
        raise NystraError(f"the page cannot run {path}: {'; '.join(problems)}; see docs/engines.md")


def _problems(session: Session) -> list[str]:
    """Return why the page cannot run a file, in addition to the reasons of every host."""
    facts, problems = session.facts, []
    if {tensor.dtype for tensor in (*session.inputs, *session.outputs)} != {"float32"}:
        problems.append("it takes or gives float16, expected float32")
    if facts.task != "restoration":
        problems.append(f"its task is {facts.task}, expected restoration")
    if facts.precision != _PRECISION:
        problems.append(f"its precision is {facts.precision}, expected {_PRECISION}")
    if facts.tiling != "supported":
        problems.append("it needs the whole image, and the page works in tiles")
    if any(isinstance(length, str) for length in session.inputs[0].shape):
        problems.append(
            "it takes any size, and the page uses tiles of one size: export it with `target` "
            "portable and, for example, `static` 1x3x128x128"
        )
    if read_onnx_header(session.path).has_operators:
        problems.append(
            "it has operators of nystra, whose bodies load slowly in browsers: export it with "
            "`target` portable"
        )
    return problems


def _row(references: str | None) -> str:
    if references is None:
        return "no `.npz` file | nothing is compared with PyTorch"
    return f"`{references}` | recorded inputs and PyTorch's outputs"
