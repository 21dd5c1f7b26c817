"""The C++ that is generated from the schemas, and other files that state a limit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from nystra.plugins.operators import OPERATORS, find_schema

CSRC = Path(__file__).resolve().parents[2] / "plugins" / "csrc"


def test_the_tables_are_what_the_schemas_say() -> None:
    command = [sys.executable, str(CSRC / "write_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stale_table_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "csrc"
    generated = [f"{part}.h" for part in ("kernels/limits", "kernels/operators", "operators/table")]
    for name in (
        *generated,
        "operators/operators.h",
        "operators/relations.cc",
        "../cmake/operators.cmake",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((CSRC / name).read_bytes())
    script = folder / "write_tables.py"
    script.write_bytes((CSRC / "write_tables.py").read_bytes())
    table = folder / "operators" / "table.h"
    table.write_text(
        table.read_text().replace('"guard", false, 0.0, 0.5', '"guard", false, 0.0, 1')
    )
    command = [sys.executable, str(script)]
    check = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)
    assert check.returncode == 1
    assert f"{table}: out of date with the schemas; run " in check.stderr
    subprocess.run(command, check=True)
    assert table.read_bytes() == (CSRC / "operators" / "table.h").read_bytes()


def test_bindings_state_no_attribute() -> None:
    """Names and ranges come from the table; only an operator's own files ask for a value."""
    names = {a.name for name in OPERATORS for a in find_schema(name).attributes}
    shared = [CSRC / "nystra_cpu.h", *(CSRC / "operators").glob("attributes.*")]
    bindings = [*(CSRC / "onnxruntime").rglob("*.*"), *(CSRC / "c_api").glob("*.*")]
    bindings += (CSRC / "tensorrt").glob("*.*")
    for path in [*shared, *bindings]:
        quoted = set(re.findall(r'"(\w+)"', path.read_text()))
        assert not quoted & names, f"{path} names {quoted & names}"
