"""Makes C++ of the operators' schemas: names, types, ranges and defaults, for every binding.

python plugins/csrc/write_tables.py            # after a change of a schema
python plugins/csrc/write_tables.py --check    # exit 1 where a file is not what it would write
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..operators import OPERATORS, find_schema
from ..operators.patch_match.schema import (
    COSINE,
    DOT,
    L2,
    LARGEST_MAP,
    MAX_NEIGHBORS,
    MAX_PATCH_SIZE,
)
from ..operators.schema import Attribute, OperatorSchema
from ..operators.window_cluster.schema import MAX_BIAS_BLOCKS, MAX_BLOCK, MAX_CLUSTERS
from ..operators.window_schema import MAX_LANDMARKS

FOLDER = Path(__file__).parent

_HEADER = """\
// {what} Made by write_tables.py from
// ../../operators/*/schema.py: change those, and run it.
// clang-format off
#pragma once
"""


def limits() -> str:
    """Return ``kernels/limits.h``: what the kernels know of the schemas."""
    return f"""\
{_HEADER.format(what="Limits that kernels are made for.")}
#include <cstdint>

namespace nystra {{

constexpr int64_t kMaxLandmarks = {MAX_LANDMARKS};       // of a window
constexpr int64_t kMaxClusters = {MAX_CLUSTERS};        // of a window
constexpr int64_t kMaxBlock = {MAX_BLOCK};            // side of a block that is exact inside
constexpr int64_t kMaxBiasBlocks = {MAX_BIAS_BLOCKS};    // of a window
constexpr int64_t kMaxPixels = {LARGEST_MAP};    // of a map that is searched: fewer
constexpr int64_t kMaxPatch = {MAX_PATCH_SIZE};           // side of a patch
constexpr int64_t kMaxNeighbors = {MAX_NEIGHBORS};       // of a pixel
constexpr int64_t kMaxPinvSize = 128;       // rows of a matrix
constexpr int64_t kL2 = {L2}, kDot = {DOT}, kCosine = {COSINE};  // metric

}}  // namespace nystra
"""


def table() -> str:
    """Return ``operators/table.h``: the schemas, and a list of the operators."""
    schemas = {name.removeprefix("Nystra"): find_schema(name) for name in OPERATORS}
    rows = "\n".join(_schema(owner, schema) for owner, schema in schemas.items())
    listed = " ".join(f"X({owner})" for owner in schemas)
    return f"""\
{_HEADER.format(what="The schemas of all operators.")}
#include "schema.h"

namespace nystra {{

{rows}
}}  // namespace nystra

// X(class) of every operator.
#define NYSTRA_OPERATORS(X) {listed}
"""


def classes() -> str:
    """Return ``operators/operators.h``, which includes the class of every operator."""
    return f"""\
{_HEADER.format(what="The classes of all operators.")}
{_includes()}
"""


def kernels() -> str:
    """Return ``kernels/operators.h``: the kernels of every operator."""
    listed = " ".join(f"NYSTRA_{folder.upper()}_CPU(X)" for folder in OPERATORS.values())
    return f"""\
{_HEADER.format(what="The kernels of all operators.")}
{_includes()}

// X(result, name, parameters) of every function of an instruction set.
#define NYSTRA_CPU_KERNELS(X) {listed}
"""


def build_list() -> str:
    """Return ``cmake/operators.cmake``: each operator has sources of this name."""
    return f"""\
# Made by csrc/write_tables.py of operators/__init__.py.
set(operators {" ".join(OPERATORS.values())})
"""


def _includes() -> str:
    return "\n".join(f'#include "{folder}.h"' for folder in OPERATORS.values())


def _schema(owner: str, schema: OperatorSchema) -> str:
    rows = ",\n".join(f"    {_attribute(attribute)}" for attribute in schema.attributes)
    kinds = [
        "".join("I" if name in schema.int32 else "T" for name in names)
        for names in (schema.inputs, schema.outputs)
    ]
    return f"""\
inline constexpr Attribute k{owner}Attributes[] = {{
{rows},
}};
inline constexpr Schema k{owner}Schema = {{
    "{schema.name}", "{kinds[0]}", "{kinds[1]}",
    k{owner}Attributes, {len(schema.attributes)},
}};
"""


def _attribute(attribute: Attribute) -> str:
    kind = "true" if attribute.kind == "int" else "false"
    default = "kNoDefault" if attribute.default is None else repr(attribute.default)
    return (
        f'{{"{attribute.name}", {kind}, {attribute.minimum!r}, {attribute.maximum!r}, {default}}}'
    )


def files() -> dict[Path, str]:
    """Return the text of every file that is made."""
    return {
        FOLDER / "kernels" / "limits.h": limits(),
        FOLDER / "operators" / "table.h": table(),
        FOLDER / "operators" / "operators.h": classes(),
        FOLDER / "kernels" / "operators.h": kernels(),
        FOLDER.parent / "cmake" / "operators.cmake": build_list(),
    }


def main() -> str | None:
    """Write the files, or with ``--check`` say which differ."""
    made = files()
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text() != text]
    if stale and "--check" in sys.argv[1:]:
        return f"{', '.join(map(str, stale))}: not what the schemas say; run {__file__}"
    for path in stale:
        path.write_text(made[path], encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main())
