"""An attribute of an operator as an option of a mechanism: with its range, default and meaning."""

from __future__ import annotations

from ...core.option_kinds import Number
from ...plugins.operators.schema import OperatorSchema


def operator_option(
    schema: OperatorSchema,
    attribute: str,
    doc: str = "",
    default: float | None = None,
    kind: type[Number] = Number,
) -> Number:
    """Return the option of an attribute.

    Args:
        schema: Schema of the operator.
        attribute: Name of the attribute.
        doc: Its meaning, if not that of the schema.
        default: Its default, if not that of the schema.
        kind: Class of the option.
    """
    limits = next(limits for limits in schema.attributes if limits.name == attribute)
    value = default
    if default is None:
        value = limits.default
    return kind(value, doc or limits.doc, limits.minimum, limits.maximum)
