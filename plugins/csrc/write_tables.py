"""Makes C++ of the operators' schemas: names, ranges, relations and limits, for every binding.

python plugins/csrc/write_tables.py            # after a change of a schema
python plugins/csrc/write_tables.py --check    # exit 1 where a file is not what it would write
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from ..operators import OPERATORS, find_schema
from ..operators.relation import Relation
from ..operators.schema import Attribute, OperatorSchema

FOLDER = Path(__file__).parent

_HEADER = """\
// {what} Made by write_tables.py from
// ../../operators/*/schema.py: change those, and run it.
// clang-format off
"""


def _operator(symbol: str) -> Callable[[Expression, object], Expression]:
    def join(left: Expression, right: object) -> Expression:
        other = right.text if isinstance(right, Expression) else str(right)
        return Expression(f"({left.text} {symbol} {other})")

    return join


class Expression:
    """C++ of what a relation computes; an attribute is its name."""

    __add__, __sub__, __mul__ = _operator("+"), _operator("-"), _operator("*")
    __floordiv__, __mod__, __and__ = _operator("/"), _operator("%"), _operator("&&")
    __gt__, __ge__, __lt__, __le__ = map(_operator, (">", ">=", "<", "<="))
    __eq__, __ne__ = _operator("=="), _operator("!=")  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        """Take the text, in parentheses where it is more than a name."""
        self.text = text

    def __format__(self, spec: str) -> str:
        """Return the text between two marks, by which `_check` finds it in an f-string."""
        return f"\0{self.text}\0"

    def __bool__(self) -> bool:
        """Refuse ``and``, ``or``, ``not`` and ``if``, which would decide now."""
        raise TypeError(f"a relation has & for and, and no branch, at {self.text}")


class _Record:
    """The attributes of a schema as expressions; any other name is an error."""

    def __init__(self, schema: OperatorSchema) -> None:
        for attribute in schema.attributes:
            if attribute.kind == "int":
                setattr(self, attribute.name, Expression(attribute.name))


def limits() -> str:
    """Return ``kernels/limits.h``: what the kernels know of the schemas."""
    known = {limit.name: limit for name in OPERATORS for limit in find_schema(name).limits}
    rows = "\n".join(
        f"constexpr int64_t k{limit.name} = {limit.value};  // {limit.doc}"
        for limit in known.values()
    )
    return f"""\
{_HEADER.format(what="Limits that kernels are built for.")}#pragma once

#include <cstdint>

namespace nystra {{

{rows}

}}  // namespace nystra
"""


def relations() -> str:
    """Return ``operators/relations.cc``: what refuses attributes that are fine alone."""
    functions = "\n".join(
        _relations(owner, schema) for owner, schema in _schemas().items() if schema.relations
    )
    return f"""\
{_HEADER.format(what="What an operator's attributes must fulfil together.")}#include "attributes.h"
#include "table.h"

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
    """Return the checks without what they say."""
    return re.sub(r'"[^"]*"', "", "".join(checks))


def _check(relation: Relation, schema: OperatorSchema) -> str:
    record = _Record(schema)
    condition = relation.refused(record).text
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
    """Return class -> schema."""
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
    return f"""\
{_HEADER.format(what="The schemas of all operators.")}#pragma once

#include "schema.h"

namespace nystra {{

// In relations.cc.
{declared}

{rows}
}}  // namespace nystra

// X(class) of every operator.
#define NYSTRA_OPERATORS(X) {listed}
"""


def classes() -> str:
    """Return ``operators/operators.h``, which includes the class of every operator."""
    return f"""\
{_HEADER.format(what="The classes of all operators.")}#pragma once

{_includes()}
"""


def kernels() -> str:
    """Return ``kernels/operators.h``: the kernels of every operator."""
    listed = " ".join(f"NYSTRA_{folder.upper()}_CPU(X)" for folder in OPERATORS.values())
    return f"""\
{_HEADER.format(what="The kernels of all operators.")}#pragma once

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


def files() -> dict[Path, str]:
    """Return the text of every file that is made."""
    return {
        FOLDER / "kernels" / "limits.h": limits(),
        FOLDER / "operators" / "table.h": table(),
        FOLDER / "operators" / "relations.cc": relations(),
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
