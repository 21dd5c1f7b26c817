"""The C interface of the CPU kernels: its refusals and messages, from Python and from C.

That it computes the same is shown by the column ``cpu-interface`` of the conformance table.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from native_nodes import NODES, arrays, attributes
from nystra.core.errors import NystraError
from nystra.plugins import c_interface, native
from nystra.plugins.library import CPU_LIBRARY, library_path
from nystra.plugins.operators import find_schema
from nystra.plugins.operators.schema import PLUGIN_ATTRIBUTES
from programs import printed_by

CSRC = Path(__file__).resolve().parents[2] / "plugins" / "csrc"


@pytest.fixture(autouse=True)
def built() -> Path:
    """The path of the library; the test is skipped if it was not built."""
    try:
        return library_path(CPU_LIBRARY)
    except FileNotFoundError as error:
        pytest.skip(str(error))


def good_attributes(operator: str, **changes: Any) -> dict[str, Any]:
    every = attributes(operator, **changes)
    return {name: value for name, value in every.items() if name not in PLUGIN_ATTRIBUTES}


def test_exports_only_its_functions(built: Path) -> None:
    lines = printed_by("nm", "-D", "--defined-only", str(built)).splitlines()
    names = {line.split()[-1].partition("@")[0] for line in lines}
    declared = re.findall(r"^\S.*?\b(nystra_\w+)\(", (CSRC / "nystra_cpu.h").read_text(), re.M)
    assert names == set(declared)
    assert len(names) == 6


@pytest.mark.parametrize("operator", NODES)
def test_left_out_attributes_take_their_defaults(operator: str) -> None:
    inputs = arrays(operator)
    required = {a.name for a in find_schema(operator).attributes if a.default is None}
    few = {name: value for name, value in good_attributes(operator).items() if name in required}
    if "Window" in operator:
        inputs[0] = np.ones((1, 8, 4, 26), np.float32)
    every = find_schema(operator).validate(few)
    for got, want in zip(
        native.run(operator, inputs, few), native.run(operator, inputs, every), strict=True
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("operator", NODES)
def test_every_range_of_the_schema_is_checked(operator: str) -> None:
    schema = find_schema(operator)
    for attribute in schema.attributes[:-1]:
        wrong = attribute.maximum + 1, attribute.minimum - 1
        for value in map(int if attribute.kind == "int" else float, wrong):
            message = f"{operator}: attribute {attribute.name} is {value:.9g}; expected "
            with pytest.raises(NystraError) as error:
                native.run(
                    operator, arrays(operator), good_attributes(operator, **{attribute.name: value})
                )
            limits = f"{attribute.minimum:.9g} to {attribute.maximum:.9g}"
            assert str(error.value) == message + limits


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("NystraPinv", {"revision": 2}, "the node has revision 2, this library of nystra .* supports"),
    ("NystraPinv", {"steps": 2}, "unknown attribute steps; expected iterations, batch_init"),
    ("NystraPinv", {"iterations": 2.5}, "attribute iterations is a number; expected an integer"),
    ("NystraPinv", {"iterations": 1 << 70}, "attribute iterations is 9223372036854775807; exp"),
    ("NystraWindowSoftmax", {"scale": float("nan")}, "attribute scale is -?nan; expected 0 to"),
    ("NystraWindowSoftmax", {"shift_w": 4}, "shift_w is 4; expected less than window_w, 4"),
    ("NystraWindowNystrom", {"landmark_rows": 33}, "33 x 2 landmarks; expected at most 64"),
    ("NystraWindowNystrom", {"landmark_cols": 1}, "cuts a landmark's cell .1 cells.; expected"),
    ("NystraPatchMatch", {"patch_size": 4}, "patch_size is 4; expected an odd number"),
]


@pytest.mark.parametrize(("operator", "changes", "message"), BAD)
def test_refused_attributes(operator: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NystraError, match=f"^{operator}: .*{message}"):
        native.run(operator, arrays(operator), good_attributes(operator, **changes))


def test_a_missing_attribute_is_named() -> None:
    few = good_attributes("NystraWindowSoftmax")
    del few["head_dim"]
    with pytest.raises(NystraError, match="NystraWindowSoftmax: attribute head_dim is missing"):
        native.run("NystraWindowSoftmax", arrays("NystraWindowSoftmax"), few)


def test_refused_inputs() -> None:
    a = np.ones((2, 3, 3), np.float32)
    for operator, inputs, message in [
        ("NystraFoo", [a], "unknown operator 'NystraFoo'"),
        ("NystraPinv", [a, a], "2 inputs and 1 outputs; expected 1 and 1"),
        ("NystraPinv", [a[:, :2]], r"input A is \(2, 2, 3\); expected square matrices"),
        ("NystraPinv", [a.astype(np.int32)], "input 0 is int32; expected float32, float16 or bfl"),
        ("NystraPinv", [a.astype(np.float64)], "an array of float64 .*; expected float32"),
        ("NystraPinv", [a.reshape((1,) * 6 + a.shape)], "with 9 dimensions; .* at most 8"),
        (
            "NystraWindowSoftmax",
            [arrays("NystraWindowSoftmax")[0], np.ones((105, 2), np.float16)],
            "input 1 is float16; expected float32",
        ),
    ]:
        with pytest.raises(NystraError, match=message):
            native.run(operator, inputs, good_attributes(operator) if operator in NODES else {})


class Interface:
    """The functions themselves, on NystraPinv, for calls that the Python wrapper never makes."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.nystra_cpu_error.restype = ctypes.c_char_p
        self.a = np.ones((2, 3, 3), np.float32)
        self.z = np.empty_like(self.a)

    def run(self, threads: int = 1, name: bytes | None = b"NystraPinv", **changes: Any) -> str:
        """The error of a run with a changed output; empty if it succeeded."""
        inputs = (c_interface.CTensor * 1)(native._tensor(self.a, "float32"))
        outputs = (c_interface.CTensor * 1)(native._tensor(self.z, "float32"))
        for field, value in changes.items():
            setattr(inputs[0] if field.startswith("in_") else outputs[0], field[3:], value)
        two = (c_interface._Attribute * 2)(*[c_interface._attribute("iterations", 2, "int")] * 2)
        count = ctypes.c_size_t
        status = self.library.nystra_cpu_run(
            *(name, two, count(2 if changes.get("_twice") else 1), inputs, count(1)),
            *(outputs, count(1), threads),
        )
        text: str = self.library.nystra_cpu_error().decode()
        assert status in (0, 1)
        return text if status else ""


def test_refused_by_the_functions_themselves(built: Path) -> None:
    run = Interface(built).run
    assert run() == ""
    assert run(threads=0) == "NystraPinv: threads is 0; expected 1 or more"
    assert run(name=None).startswith("nystra: unknown operator; expected NystraPinv, ")
    assert run(in_data=None) == "NystraPinv: input 0 has no data"
    assert run(in_rank=9) == "NystraPinv: input 0 has rank 9; expected 0 to 8"
    assert run(in_type=4).endswith(
        "input 0 is of an unknown type; expected float32, float16 or bfloat16"
    )
    assert run(in_type=2) == "NystraPinv: output 0 is float32; expected bfloat16"
    assert run(ou_data=None) == "NystraPinv: output 0 has no data"
    assert run(ou_type=1) == "NystraPinv: output 0 is float16; expected float32"
    assert run(ou_rank=2) == "NystraPinv: output 0 is (2, 3); expected (2, 3, 3)"
    shape = (ctypes.c_int64 * 8)(2, -1, -1)
    assert run(in_shape=shape).endswith("input 0 is (2, -1, -1); expected no negative size")


@pytest.mark.parametrize("left_out", ["attributes", "inputs", "outputs"])
def test_lists_that_are_null(built: Path, left_out: str) -> None:
    interface = Interface(built)
    library, count = interface.library, ctypes.c_size_t
    lists: dict[str, Any] = {
        "attributes": (c_interface._Attribute * 1)(c_interface._attribute("iterations", 2, "int")),
        "inputs": (c_interface.CTensor * 1)(native._tensor(interface.a, "float32")),
        "outputs": (c_interface.CTensor * 1)(native._tensor(interface.z, "float32")),
    }
    lists[left_out] = None
    arguments = [argument for given in lists.values() for argument in (given, count(1))]
    for status in (
        library.nystra_cpu_run(b"NystraPinv", *arguments, 1),
        library.nystra_cpu_outputs(b"NystraPinv", *arguments),
    ):
        assert status == 1
        message = f"NystraPinv: {left_out} is null; expected 1 of them"
        assert library.nystra_cpu_error().decode() == message
    if left_out == "attributes":
        arguments[1] = count(0)
        assert library.nystra_cpu_run(b"NystraPinv", *arguments, 1) == 0


def test_errors_are_the_thread_s_own(built: Path) -> None:
    interface = Interface(built)
    assert interface.run(threads=0)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(interface.library.nystra_cpu_error).result() == b""
    assert b"threads is 0" in interface.library.nystra_cpu_error()


@pytest.mark.parametrize("operator", NODES)
def test_the_number_of_threads_changes_nothing(operator: str) -> None:
    inputs = arrays(operator)
    runs = [
        native.run(operator, inputs, good_attributes(operator), threads) for threads in (1, 2, 7)
    ]
    for other in runs[1:]:
        for got, want in zip(other, runs[0], strict=True):
            np.testing.assert_array_equal(got, want)


def test_many_calls_at_once() -> None:
    operator = "NystraPatchMatch"
    inputs = arrays(operator)
    want = native.run(operator, inputs, good_attributes(operator), 1)
    with ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(native.run, operator, inputs, good_attributes(operator), 3)
            for _ in range(60)
        ]
        for run in runs:
            np.testing.assert_array_equal(run.result()[1], want[1])


@pytest.mark.full
def test_threads_are_kept_and_a_forked_process_has_its_own() -> None:
    """Starting a thread may take a millisecond; a fork has none."""
    code = """if True:
        import os, signal
        from native_nodes import arrays, attributes
        from nystra.plugins import native
        from nystra.plugins.operators.schema import PLUGIN_ATTRIBUTES

        operator = "NystraPatchMatch"
        inputs = arrays(operator)
        checked = {k: v for k, v in attributes(operator).items() if k not in PLUGIN_ATTRIBUTES}
        want = native.run(operator, inputs, checked, 1)
        counts = []
        for _ in range(5):
            counts.append(len(os.listdir("/proc/self/task")))
            native.run(operator, inputs, checked, 2)
        child = os.fork()
        signal.alarm(60)  # where it waits for threads that it has not
        got = native.run(operator, inputs, checked, 2)
        same = all((a == b).all() for a, b in zip(got, want))
        if child == 0:
            os._exit(0 if same else 1)
        print(*(count - counts[0] for count in counts), same, os.waitpid(child, 0)[1])
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.stdout == "0 1 1 1 1 True 0\n", done.stderr


def test_it_stays_in_memory(built: Path) -> None:
    """Its waiting threads run its code."""
    code = f"""if True:
        import ctypes, _ctypes
        _ctypes.dlclose(ctypes.CDLL({str(built)!r})._handle)
        print({built.name!r} in open("/proc/self/maps").read())
    """
    assert printed_by(sys.executable, "-c", code) == "True\n"


def test_nothing_to_do() -> None:
    assert native.run("NystraPinv", [np.ones((0, 3, 3), np.float32)], {})[0].shape == (0, 3, 3)


def test_strided_inputs_are_copied() -> None:
    a = np.random.default_rng(0).random((3, 3, 2), np.float32).transpose(2, 0, 1)
    (got,) = native.run("NystraPinv", [a], {})
    (want,) = native.run("NystraPinv", [a.copy()], {})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_the_order_of_bytes_changes_nothing(name: str) -> None:
    a = np.random.default_rng(0).random((2, 3, 3), np.float32).astype(name)
    for order in "<>":
        (got,) = native.run("NystraPinv", [a.astype(a.dtype.newbyteorder(order))], {})
        (want,) = native.run("NystraPinv", [a], {})
        np.testing.assert_array_equal(got, want)
    inputs = arrays("NystraPatchMatch")  # int32 besides
    turned = [array.astype(array.dtype.newbyteorder(">")) for array in inputs]
    every = good_attributes("NystraPatchMatch")
    for got, want in zip(
        native.run("NystraPatchMatch", turned, every),
        native.run("NystraPatchMatch", inputs, every),
        strict=True,
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("threads", [0, -1, 1 << 31, 10**12, -(10**12)])
def test_a_number_of_threads_that_cannot_be(threads: int) -> None:
    with pytest.raises(NystraError, match=f"`threads` is {threads}; expected 1 to 2147483647"):
        native.run("NystraPinv", [np.ones((1, 3, 3), np.float32)], {}, threads)


@pytest.mark.parametrize(
    "shape", [(1 << 62, 6, 6), (1 << 31, 1 << 31, 6, 6), (1 << 61, 1, 1), (1 << 62, 0, 6, 6)]
)
def test_a_tensor_of_more_bytes_than_can_be_counted(shape: tuple[int, ...]) -> None:
    with pytest.raises(NystraError, match=r"input 0 is .*; expected less than 2\^63 bytes"):
        native.outputs("NystraPinv", [(shape, "float32")], {})
    assert native.outputs("NystraPinv", [((1 << 50, 6, 6), "float32")], {})[0][0][0] == 1 << 50


def test_an_unknown_instruction_set_is_said(built: Path) -> None:
    script = (
        "from nystra.plugins import native\n"
        "assert not native.available()\n"
        "native.run('NystraPinv', [], {})"
    )
    env = {**os.environ, "NYSTRA_CPU_ISA": "mmx"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "BackendUnavailableError: NYSTRA_CPU_ISA is 'mmx'; expected" in done.stderr


PROGRAM = r"""
#include "nystra_cpu.h"
#include <stdio.h>
int main(void) {
  float a[4] = {2, 0, 0, 4}, z[4];
  nystra_cpu_attribute steps = {"iterations", 0, 8, 0};
  nystra_cpu_tensor in = {a, NYSTRA_CPU_FLOAT32, 2, {2, 2}}, out = {0};
  if (nystra_cpu_outputs("NystraPinv", &steps, 1, &in, 1, &out, 1)) return 1;
  out.data = z;
  if (nystra_cpu_run("NystraPinv", &steps, 1, &in, 1, &out, 1, 2)) return 2;
  printf("%d %.4f %.4f\n", out.rank, z[0], z[3]);
  steps.integer = 9;
  if (nystra_cpu_run("NystraPinv", &steps, 1, &in, 1, &out, 1, 2) != NYSTRA_CPU_REFUSED) return 3;
  puts(nystra_cpu_error());
  return nystra_cpu_interface() != NYSTRA_CPU_INTERFACE;
}
"""


def test_a_program_in_c(built: Path, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc on this machine")
    if b"__asan_init" in built.read_bytes():
        pytest.skip("the sanitizers' runtimes are loaded before Python alone")
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    options = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{CSRC}"]
    program = str(tmp_path / "program")
    printed_by(
        "gcc", *options, str(source), str(built), f"-Wl,-rpath,{built.parent}", "-o", program
    )
    message = printed_by(program).splitlines()
    assert message == ["2 0.5000 0.2500", "NystraPinv: attribute iterations is 9; expected 1 to 8"]


@pytest.mark.full
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_scratch_is_for_the_threads_that_have_tasks(tmp_path: Path) -> None:
    """A host of 64 CPUs and one thread got the scratch of 64."""
    program = tmp_path / "scratch"
    tables = [sys.executable, "-IS", str(CSRC / "write_tables.py"), str(tmp_path)]
    subprocess.run(tables, check=True)
    sources = [Path(__file__).with_name("threads_scratch.cc"), CSRC / "operators" / "threads.cc"]
    command = ["c++", "-std=c++17", "-O1", "-pthread", f"-I{CSRC}", f"-I{tmp_path}"]
    command += [*map(str, sources)]
    subprocess.run([*command, "-o", str(program)], check=True)
    assert printed_by(str(program)).split() == ["4096", "1", "bad_alloc", "2000"]
