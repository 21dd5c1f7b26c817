"""The page of ``nystra-export --report`` and its example programs."""

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from onnx import TensorProto

from classifier_models import save_classifier
from native_nodes import library
from nystra.cli.main import export_main
from nystra.export.report.export_page import _most_changed
from nystra.export.report.loading_text import loading_texts
from nystra.models.pretrained import checkpoint_path
from nystra.runtime import ImageData, Session, write_image
from runtime_models import nystra_metadata, save_operator, save_upscaler
from shared import ROOT

Texts: TypeAlias = dict[str, str]


def test_the_programs_load_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pixels = np.zeros((8, 9, 3), np.float32)
    (tmp_path / "in").mkdir()
    write_image(tmp_path / "in" / "a.png", ImageData(pixels))
    write_image(tmp_path / "photo.png", ImageData(pixels))
    model = save_upscaler(tmp_path / "twice.onnx", metadata=nystra_metadata())
    for path in (model, save_classifier(tmp_path / "colors.onnx")):
        texts = dict(loading_texts(Session(path, threads=1)))
        for title, text in texts.items():
            if title.startswith("Python"):
                exec(text, {})
            else:
                assert path.stem in text
            assert "libnystra" not in text  # it has no operators of ours
    assert (tmp_path / "out" / "a.png").exists()


def test_the_programs_load_the_library_where_there_are_operators(tmp_path: Path) -> None:
    path = save_operator(tmp_path / "double.onnx", body=True)
    texts = loading_texts(Session(path, threads=1, library=None))
    assert all("register" in text.lower() or "op_library" in text for _, text in texts[1:])


def test_onnxruntime_alone_is_without_nystra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program runs in the folder of the file, next to a copy of the library."""
    path = save_operator(tmp_path / "double.onnx", body=True)
    shutil.copy(library(), tmp_path / "libnystra_onnxruntime.so")
    program = dict(loading_texts(Session(path, threads=1, library=None)))[
        "Python, onnxruntime alone:"
    ]
    assert "import nystra" not in program
    assert "from nystra" not in program
    monkeypatch.chdir(tmp_path)
    run = [sys.executable, "-c", f"import sys; sys.modules['nystra'] = None\n{program}\n"]
    compiled(run)
    (tmp_path / "libnystra_onnxruntime.so").unlink()
    with pytest.raises(AssertionError, match="cannot open shared object"):
        compiled(run)


def test_pages_and_the_manual_load_the_library_alike(tmp_path: Path) -> None:
    path = save_operator(tmp_path / "double.onnx", body=True)
    texts = dict(loading_texts(Session(path, threads=1, library=None)))
    manual = (ROOT / "docs/engines.md").read_text(encoding="utf-8")
    pattern = r"options\.RegisterCustomOp\w*\(.*?\);"
    for language, title in (("cpp", "C++"), ("csharp", "C#:")):
        (block,) = re.findall(rf"^```{language}\n(.*?)^```", manual, re.M | re.S)
        (program,) = (text for name, text in texts.items() if name.startswith(title))
        assert re.findall(pattern, program) == re.findall(pattern, block) != []
        assert '"./libnystra_onnxruntime.so"' in program


@pytest.fixture(scope="module", params=["float32", "float16", "one size", "operator", "classes"])
def texts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Texts:
    """The programs of a file, by the first word of their titles."""
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    if request.param == "operator":
        save_operator(path, body=True)
    elif request.param == "classes":
        save_classifier(path)
    else:
        size = (16, 24) if request.param == "one size" else ("height", "width")
        half = request.param == "float16"
        dtype = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        save_upscaler(path, size=size, dtype=dtype, batch=1 if size == (16, 24) else "batch")
    session = Session(path, threads=1, library=None)
    return {title.split()[0].strip(",:"): text for title, text in loading_texts(session)}


def compiled(command: list[object]) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_program_in_cpp_compiles(texts: Texts, tmp_path: Path) -> None:
    root = os.environ.get("ONNXRUNTIME_ROOT")
    if not root:
        pytest.skip("ONNXRUNTIME_ROOT is not set: no onnxruntime headers to compile with")
    include, _, program = texts["C++"].partition("\n")
    source = tmp_path / "small.cc"
    source.write_text(f"{include}\nint main() {{\n{program}\nreturn output == nullptr;\n}}\n")
    flags = ["-std=c++17", "-fsyntax-only", "-Wall", "-Werror"]
    compiled([shutil.which("c++") or "g++", *flags, f"-I{root}/include", source])


def test_the_program_in_csharp_compiles(texts: Texts, tmp_path: Path) -> None:
    compiler = shutil.which("mcs")
    if compiler is None:
        pytest.skip("no mcs on this machine: no C# compiler")
    lines = texts["C#"].splitlines()
    split = lines.index("")
    program = "\n".join(lines[split:]).replace("using var", "var")  # mcs stops at C# 7
    source = tmp_path / "small.cs"
    source.write_text(
        "\n".join(lines[:split]) + f"\nclass Small {{ static void Main() {{ {program}\n}} }}\n"
    )
    declared = ROOT / "tests" / "deploy" / "onnxruntime_declared.cs"
    compiled([compiler, f"-out:{tmp_path}/small.exe", source, declared])


def test_the_configuration_for_triton_is_one(texts: Texts) -> None:
    config_pb2 = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="no tritonclient")
    from google.protobuf.text_format import Parse

    config = Parse(texts["Triton"], config_pb2.ModelConfig())
    assert (config.name, config.backend) == ("small", "onnxruntime")
    assert len(config.input) == len(config.output) == 1
    assert config.max_batch_size == (0 if "dims: [1, 3, 16, 24]" in texts["Triton"] else 8)


def test_the_part_that_changes_most() -> None:
    difference = np.zeros((100, 90), np.float32)
    difference[61:70, 30:40] = 1
    top, left = _most_changed(difference, 2)
    assert top % 2 == left % 2 == 0
    assert difference[top : top + 40, left : left + 40].sum() == 90
    assert _most_changed(difference[:20, :30], 1) == (0, 0)


def test_a_folder_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "page").write_text("")
    arguments = ["swinir_x2_w16", "--attn", "full", "--report", str(tmp_path / "page")]
    assert export_main(arguments) == 2
    assert "is a file, expected a folder" in capsys.readouterr().err


@pytest.mark.full
def test_the_page_of_an_export(tmp_path: Path) -> None:
    checkpoint = checkpoint_path(Path("swinir_x2_w16"))
    arguments = [str(checkpoint), "--attn", "cluster", "-o", str(tmp_path / "small.onnx")]
    page = tmp_path / "new" / "small.export.html"
    assert export_main([*arguments, "--no-speed", "-q", "--report", str(page.parent)]) == 0
    text = html.unescape(page.read_text())
    assert text.count('src="data:image/png') == 3 * (3 + 4)
    for heading in ("Images", "Sites", "Load it"):
        assert f"<h2>{heading}</h2>" in text
    assert re.search(r"against full\S+>\d\d\.\d dB mean", text)
    assert "layers.0.residual_group.blocks.{0, 1, 2, 3, 4, 5}.attn" in text
    assert not re.search(r"<script|https?://|<link", text)
