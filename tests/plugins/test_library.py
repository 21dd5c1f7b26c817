"""The onnxruntime library: its symbols, its instruction sets, and its stability."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from native_nodes import NODES, SHAPES, arrays, attributes, library, node_session, run_node
from nystra.plugins.library import INSTRUCTION_SETS, is_supported, isa, library_path
from nystra.plugins.operators import OPERATORS, find_schema
from nystra.plugins.operators.window_schema import MAX_LANDMARKS
from processor import best_instruction_set
from programs import printed_by


def _sanitized() -> bool:
    return b"__asan_init" in library().read_bytes()


def _in_process(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_every_operator_has_a_node_here() -> None:
    assert set(NODES) == set(SHAPES) == set(OPERATORS)


def test_exports_only_its_entry_points() -> None:
    lines = printed_by("nm", "-D", "--defined-only", str(library())).splitlines()
    names = {line.split()[-1].partition("@")[0] for line in lines}
    assert names == {"RegisterCustomOps", "nystra_isa"}


def test_needs_no_onnxruntime() -> None:
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", printed_by("readelf", "-d", str(library())))
    assert needed
    known = r"(libstdc\+\+|libgcc_s|libc|libm|libpthread|ld-linux.*)\.so\.\d+"
    extra = [name for name in needed if not re.fullmatch(known, name)]
    assert not extra or (_sanitized() and all("san" in name for name in extra))


def test_library_dir_is_looked_in_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "libnystra_onnxruntime.so"
    built.touch()
    monkeypatch.setenv("NYSTRA_LIBRARY_DIR", str(tmp_path))
    assert library_path() == built


def test_absent_library_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYSTRA_LIBRARY_DIR", "/nowhere")
    with pytest.raises(FileNotFoundError, match=r"no libnystra_nothing\.so in /nowhere.*cmake"):
        library_path("nystra_nothing")


def test_instruction_set() -> None:
    library()
    assert is_supported()
    assert isa() in INSTRUCTION_SETS


def test_the_best_instruction_set_of_the_processor_is_taken() -> None:
    library()
    script = "from nystra.plugins.library import isa; print(isa())"
    assert _in_process(script, NYSTRA_CPU_ISA="").stdout.strip() == best_instruction_set()


@pytest.mark.full
@pytest.mark.parametrize("name", ["mmx", "AVX2", "avx512 "])
def test_unknown_instruction_set_is_an_error(name: str) -> None:
    path = library()
    done = _in_process("from nystra.plugins.library import isa; isa()", NYSTRA_CPU_ISA=name)
    assert done.returncode != 0
    assert (
        f"NYSTRA_CPU_ISA is '{name}'; expected one of generic, avx2, avx512, avx512_bf16, amx"
        in done.stderr
    )
    registered = _in_process(
        f"import onnxruntime as o;o.SessionOptions().register_custom_ops_library({str(path)!r})",
        NYSTRA_CPU_ISA=name,
    )
    assert registered.returncode != 0
    assert (
        f"NYSTRA_CPU_ISA is '{name}'; expected generic, avx2, avx512, avx512_bf16 or amx"
        in registered.stderr
    )


def test_generic_set_can_be_forced() -> None:
    library()
    script = "from nystra.plugins.library import isa; print(isa())"
    assert _in_process(script, NYSTRA_CPU_ISA="generic").stdout.strip() == "generic"


WINDOWED = [name for name in NODES if "Window" in name]
SHIFTED = [name for name in WINDOWED if "shift_w" in NODES[name]]
NYSTROM = ["NystraWindowNystrom", "NystraWindowNystromformer"]

BAD_SHAPES = [
    ("NystraPinv", 0, (6,), r"input A is \(6\); expected square matrices"),
    ("NystraPinv", 0, (2, 6, 5), r"input A is \(2, 6, 5\); expected square matrices"),
    ("NystraPinv", 0, (1, 129, 129), r"input A is \(1, 129, 129\); expected m from 1 to 128"),
    ("NystraPinv", 0, (3, 0, 0), r"input A is \(3, 0, 0\); expected m from 1 to 128"),
    *((name, 0, (16, 8, 26), r"input qkv is \(16, 8, 26\); expected rank 4") for name in WINDOWED),
    *((name, 0, (2, 16, 8, 27), r"27 channels; expected 26 = heads") for name in WINDOWED),
    *((name, 0, (2, 12, 8, 26), r"height 12; expected a multiple of.*8") for name in WINDOWED),
    *((name, 0, (2, 16, 6, 26), r"width 6; expected a multiple of.*4") for name in WINDOWED),
    ("NystraWindowSoftmax", 1, (104, 2), r"bias_table is \(104, 2\); expected \(105, 2\)"),
    ("NystraWindowOverlap", 1, (105, 2), r"bias_table is \(105, 2\); expected \(171, 2\)"),
    ("NystraWindowCosine", 2, (3,), r"logit_scale is \(3\); expected \(2\) = \(heads\)"),
    ("NystraWindowSoftmax", 1, (1,), r"bias_table is \(1\); expected \(105, 2\)"),
]


@pytest.mark.parametrize(("operator", "place", "shape", "message"), BAD_SHAPES)
def test_wrong_shape(operator: str, place: int, shape: tuple[int, ...], message: str) -> None:
    inputs = arrays(operator)
    inputs[place] = np.zeros(shape, np.float32)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument) as error:
        run_node(operator, attributes(operator), inputs)
    assert re.search(f"{operator}: .*{message}", str(error.value))


def out_of_range() -> Iterator[tuple[str, str, float, str]]:
    """Yield an operator, an attribute, a value below or above its range, and the message."""
    for name in NODES:
        for attribute in find_schema(name).attributes[:-1]:
            limits = f"{attribute.minimum:.9g} to {attribute.maximum:.9g}"
            for value in (attribute.minimum - 1, attribute.maximum + 1):
                message = f"attribute {attribute.name} is {value:.9g}; expected {limits}"
                typed = int(value) if attribute.kind == "int" else float(value)
                yield name, attribute.name, typed, re.escape(message)


HUGE = 2**62
BAD_ATTRIBUTES = [
    *((name, {"revision": 2}, "node has revision 2, this library.*revision 1") for name in NODES),
    *((name, {changed: value}, message) for name, changed, value, message in out_of_range()),
    *((name, {"head_dim": HUGE}, f"attribute head_dim is {HUGE}") for name in WINDOWED),
    *((name, {"shift_w": 4}, "shift_w is 4; expected less than window_w, 4") for name in SHIFTED),
    *((name, {"scale": float("nan")}, "attribute scale is -?nan") for name in WINDOWED),
    *((name, {"scale": float("inf")}, "attribute scale is inf") for name in WINDOWED),
    *((name, {"landmark_rows": HUGE}, "landmark_rows is") for name in NYSTROM),
    *((name, {"landmark_rows": MAX_LANDMARKS}, " x 2 landmarks; expected at") for name in NYSTROM),
    *((name, {"landmark_cols": 1}, "cuts a landmark's cell.*WindowSoftmax") for name in NYSTROM),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "changes", "message"), BAD_ATTRIBUTES)
def test_wrong_attribute(operator: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(Exception, match=f"{operator}: .*{message}"):
        node_session(operator, attributes(operator, **changes), arrays(operator))


@pytest.mark.parametrize("operator", NODES)
def test_missing_attribute(operator: str) -> None:
    incomplete = attributes(operator)
    del incomplete["iterations" if "iterations" in incomplete else "bias"]
    with pytest.raises(Exception, match=f"{operator}: attribute .* is missing or not an INT"):
        node_session(operator, incomplete, arrays(operator))


@pytest.mark.parametrize("operator", NODES)
def test_wrong_attribute_type(operator: str) -> None:
    with pytest.raises(Exception, match=f"{operator}: attribute revision is missing or not an INT"):
        node_session(operator, attributes(operator, revision="one"), arrays(operator))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("operator", NODES)
def test_zero_batch(operator: str, dtype: str) -> None:
    inputs = arrays(operator, dtype)
    batch, rank = len(inputs[0]), inputs[0].ndim
    inputs = [x[:0] if (len(x), x.ndim) == (batch, rank) else x for x in inputs]
    result = run_node(operator, attributes(operator), inputs)
    assert result.shape[0] == 0
    assert result.dtype == dtype


@pytest.mark.parametrize("operator", WINDOWED)
def test_zero_height(operator: str) -> None:
    inputs = arrays(operator)
    inputs[0] = inputs[0][:, :0]
    assert run_node(operator, attributes(operator), inputs).shape == (2, 0, 8, 6)


@pytest.mark.parametrize("operator", NODES)
def test_nan_stays_where_it_is(operator: str) -> None:
    inputs = arrays(operator)
    clean = run_node(operator, attributes(operator, batch_init=0), inputs)
    inputs[0][0, ..., -1] = np.nan
    result = run_node(operator, attributes(operator, batch_init=0), inputs)
    assert not np.isfinite(result[0]).all()  # NaN, or the score of no match
    np.testing.assert_array_equal(result[1:], clean[1:])


MANY_SESSIONS = """
import gc, os
from pathlib import Path
import numpy as np
from native_nodes import NODES, arrays, attributes, node_session

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def sessions(count):
    for operator in NODES:
        inputs = arrays(operator)
        feed = {f"x{i}": array for i, array in enumerate(inputs)}
        first = None
        for _ in range(count):
            result = node_session(operator, attributes(operator), inputs, 1).run(None, feed)[-1]
            first = result if first is None else first
            np.testing.assert_array_equal(result, first)
    gc.collect()

sessions(60)
before = resident()
sessions(200)
print(resident() - before)
"""


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to read memory from")
def test_a_thousand_sessions_do_not_grow() -> None:
    """A leak of 2 KiB per session fails; the library is unloaded in between."""
    library()
    if _sanitized():
        pytest.skip("a sanitizer keeps what is freed")
    done = _in_process(MANY_SESSIONS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2 << 20


@pytest.mark.full
@pytest.mark.parametrize("operator", NODES)
def test_threads_share_sessions(operator: str) -> None:
    inputs = [arrays(operator, seed=seed) for seed in range(4)]
    sessions = [node_session(operator, attributes(operator), inputs[0]) for _ in range(2)]
    feeds = [{f"x{i}": array for i, array in enumerate(arrays)} for arrays in inputs]
    expected = [sessions[0].run(None, feed)[0] for feed in feeds]

    def call(i: int) -> bool:
        result = sessions[i % 2].run(None, feeds[i % 4])[0]
        return bool(np.array_equal(result, expected[i % 4]))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(call, range(120)))


@pytest.mark.parametrize("operator", NODES)
def test_thread_count_does_not_matter(operator: str) -> None:
    inputs = arrays(operator)
    feed = {f"x{i}": array for i, array in enumerate(inputs)}
    one, three = (
        node_session(operator, attributes(operator), inputs, n).run(None, feed)[0] for n in (1, 3)
    )
    np.testing.assert_array_equal(one, three)
