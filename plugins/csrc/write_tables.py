"""Writes what a build makes from the operators' schemas: names, ranges, relations and limits.

``python plugins/csrc/write_tables.py FOLDER`` writes C++ and the list for CMake into the folder,
which is on the include path beside ``csrc``. It needs nothing but Python.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nystra.plugins.operators.relation import Relation
    from nystra.plugins.operators.schema import Attribute, OperatorSchema

sources = sys.modules["sources"] = ModuleType("sources")
sources.__path__ = [str(Path(__file__).parents[2])]  # of this tree, whichever nystra is installed
_operators = import_module("sources.plugins.operators")
OPERATORS: dict[str, str] = _operators.OPERATORS
find_schema: Callable[[str], OperatorSchema] = _operators.find_schema

_HEADER = """\
// {what} Written by plugins/csrc/write_tables.py.
"""


def _operator(symbol: str) -> Callable[[Expression, object], Expression]:
    def join(left: Expression, right: object) -> Expression:
        other = right.text if isinstance(right, Expression) else str(right)
        return Expression(f"({left.text} {symbol} {other})")

    return join


class Expression:
    """C++ code of an expression in a relation; an attribute is its name."""

    __add__, __sub__, __mul__ = _operator("+"), _operator("-"), _operator("*")
    __floordiv__, __mod__, __and__ = _operator("/"), _operator("%"), _operator("&&")
    __gt__, __ge__, __lt__, __le__ = map(_operator, (">", ">=", "<", "<="))
    __eq__, __ne__ = _operator("=="), _operator("!=")  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self.text = text

    def __format__(self, spec: str) -> str:
        """Return the text between two marks, with which `_check` finds it in an f-string."""
        return f"\0{self.text}\0"

    def __bool__(self) -> bool:
        """Refuse ``and``, ``or``, ``not`` and ``if``, which would be evaluated here."""
        raise TypeError(f"a relation has & for and, and no branch, at {self.text}")


class _Record:
    """The attributes of a schema as expressions; any other name is an error."""

    def __init__(self, schema: OperatorSchema) -> None:
        for attribute in schema.attributes:
            if attribute.kind == "int":
                setattr(self, attribute.name, Expression(attribute.name))


def limits() -> str:
    """Return ``kernels/limits.h``: the limits of the schemas for the kernels."""
    limits_by_name = {limit.name: limit for name in OPERATORS for limit in find_schema(name).limits}
    rows = "\n".join(
        f"constexpr int64_t k{limit.name} = {limit.value};  // {limit.doc}"
        for limit in limits_by_name.values()
    )
    return f"""\
{_HEADER.format(what="Limits that kernels are built for.")}#pragma once

#include <cstdint>

namespace nystra {{

{rows}

}}  // namespace nystra
"""


def relations() -> str:
    """Return ``operators/relations.cc``: checks of the relations between attributes."""
    functions = "\n".join(
        _relations(owner, schema) for owner, schema in _schemas().items() if schema.relations
    )
    return f"""\
{_HEADER.format(what="Relations between attributes.")}#include "operators/attributes.h"
#include "operators/table.h"

namespace nystra {{

{functions}
}}  // namespace nystra
"""


def _relations(owner: str, schema: OperatorSchema) -> str:
    checks = [_check(relation, schema) for relation in schema.relations]
    used = [a.name for a in schema.attributes if re.search(rf"\b{a.name}\b", _code(checks))]
    names = "\n".join(f'  const int64_t {name} = a.integer("{name}");' for name in used)
    return f"""\
void check_relations_of_{owner}(const Attributes& a) {{
{names}
{"".join(checks)}}}
"""


def _code(checks: list[str]) -> str:
    return re.sub(r'"[^"]*"', "", "".join(checks))


def _check(relation: Relation, schema: OperatorSchema) -> str:
    record = _Record(schema)
    condition = relation.is_violated(record).text
    if relation.when is not None:
        condition = f"({relation.when} && {condition})"
    parts = relation.message(record).split("\0")
    texts = [
        f"std::to_string({part})" if place % 2 else json.dumps(part)
        for place, part in enumerate(parts)
        if part
    ]
    first, *rest = texts
    message = " + ".join([f"std::string({first})" if first.startswith('"') else first, *rest])
    return f"  if {condition}\n    throw Refusal({message});\n"


def _schemas() -> dict[str, OperatorSchema]:
    return {name.removeprefix("Nystra"): find_schema(name) for name in OPERATORS}


def table() -> str:
    """Return ``operators/table.h``: the schemas, and a list of the operators."""
    schemas = _schemas()
    declared = "\n".join(
        f"void check_relations_of_{owner}(const Attributes&);"
        for owner, schema in schemas.items()
        if schema.relations
    )
    rows = "\n".join(_schema(owner, schema) for owner, schema in schemas.items())
    listed = " ".join(f"X({owner})" for owner in schemas)
    on_cuda = " ".join(f"X({name.removeprefix('Nystra')})" for name in cuda_operators())
    return f"""\
{_HEADER.format(what="The schemas of all operators.")}#pragma once

#include "operators/schema.h"

namespace nystra {{

// In relations.cc.
{declared}

{rows}
}}  // namespace nystra

// X(class) of every operator.
#define NYSTRA_OPERATORS(X) {listed}

// X(class) of every operator with a CUDA kernel.
#define NYSTRA_CUDA_OPERATORS(X) {on_cuda}
"""


def classes() -> str:
    """Return ``operators/operators.h``, which includes the class of every operator."""
    return f"""\
{_HEADER.format(what="The classes of all operators.")}#pragma once

{_includes("operators")}
"""


def kernels() -> str:
    """Return ``kernels/operators.h``: the kernels of every operator."""
    listed = " ".join(f"NYSTRA_{folder.upper()}_CPU(X)" for folder in OPERATORS.values())
    return f"""\
{_HEADER.format(what="The kernels of all operators.")}#pragma once

{_includes("kernels")}

// X(result, name, parameters) of every function of an instruction set.
#define NYSTRA_CPU_KERNELS(X) {listed}
"""


def build_list() -> str:
    """Return ``operators.cmake``: the names of the CUDA kernels' sources."""
    return f"set(cuda_operators {' '.join(cuda_operators().values())})\n"


def cuda_operators() -> dict[str, str]:
    """Return the rows of ``OPERATORS`` for which there is a CUDA kernel."""
    return {name: row for name, row in OPERATORS.items() if find_schema(name).plugin == name}


def _includes(part: str) -> str:
    return "\n".join(f'#include "{part}/{folder}.h"' for folder in OPERATORS.values())


def _schema(owner: str, schema: OperatorSchema) -> str:
    rows = ",\n".join(f"    {_attribute(attribute)}" for attribute in schema.attributes)
    kinds = []
    for names in (schema.inputs, schema.outputs):
        kinds.append("".join("I" if name in schema.int32 else "T" for name in names))
    check = f"check_relations_of_{owner}" if schema.relations else "nullptr"
    return f"""\
inline constexpr Attribute k{owner}Attributes[] = {{
{rows},
}};
inline constexpr Schema k{owner}Schema = {{
    "{schema.name}", "{kinds[0]}", "{kinds[1]}",
    k{owner}Attributes, {len(schema.attributes)}, {check},
}};
"""


def _attribute(attribute: Attribute) -> str:
    kind = "true" if attribute.kind == "int" else "false"
    default = "kNoDefault" if attribute.default is None else repr(attribute.default)
    return (
        f'{{"{attribute.name}", {kind}, {attribute.minimum!r}, {attribute.maximum!r}, {default}}}'
    )


def write(folder: Path) -> None:
    """Write the files into a folder; those that are there and the same stay, for the compiler."""
    texts = {
        "kernels/limits.h": limits(),
        "kernels/operators.h": kernels(),
        "operators/table.h": table(),
        "operators/relations.cc": relations(),
        "operators/operators.h": classes(),
        "operators.cmake": build_list(),
    }
    for name, text in texts.items():
        file = folder / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    [folder] = sys.argv[1:]
    write(Path(folder))
