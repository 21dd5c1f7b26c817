"""The C++ that is written from the schemas, and other files that state a limit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from nystra.plugins.operators import OPERATORS, find_schema

CSRC = Path(__file__).resolve().parents[2] / "plugins" / "csrc"


def test_the_tables_are_what_the_schemas_say(tmp_path: Path) -> None:
    """Without numpy and an installed nystra, as in a build; what is there and right stays."""
    command = [sys.executable, "-IS", str(CSRC / "write_tables.py"), str(tmp_path)]
    subprocess.run(command, check=True)
    table, limits = tmp_path / "operators" / "table.h", tmp_path / "kernels" / "limits.h"
    rows = re.findall(r'^    \{"(\w+)", (?:true|false), (\S+), (\S+),', table.read_text(), re.M)
    schemas = [find_schema(name) for name in OPERATORS]
    stated = [(a.name, str(a.minimum), str(a.maximum)) for s in schemas for a in s.attributes]
    assert rows == stated
    kept = limits.stat().st_mtime_ns
    table.write_text(table.read_text().replace("0.5", "1"))
    subprocess.run(command, check=True)
    assert '"guard", false, 0.0, 0.5' in table.read_text()
    assert limits.stat().st_mtime_ns == kept


def test_bindings_state_no_attribute() -> None:
    """Names and ranges come from the table; only an operator's own files ask for a value."""
    names = {a.name for name in OPERATORS for a in find_schema(name).attributes}
    shared = [CSRC / "nystra_cpu.h", *(CSRC / "operators").glob("attributes.*")]
    bindings = [*(CSRC / "onnxruntime").rglob("*.*"), *(CSRC / "c_api").glob("*.*")]
    bindings += (CSRC / "tensorrt").glob("*.*")
    for path in [*shared, *bindings]:
        quoted = set(re.findall(r'"(\w+)"', path.read_text()))
        assert not quoted & names, f"{path} names {quoted & names}"
