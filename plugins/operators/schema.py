"""The schema of an operator: inputs, outputs, attributes and their limits."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...core.errors import NystraError
from .relation import Limit, Relation

VERSION = 1
"""Version of the operator domain."""

REVISION = 1
"""Revision of the operators' meaning; a change of meaning raises it, and older kernels refuse
it."""

PLUGIN_ATTRIBUTES = {"plugin_version": "1", "plugin_namespace": ""}
"""Strings that every node carries, so that TensorRT takes a registered plugin."""

Attributes = dict[str, int | float]
"""The attributes of one operator, by name."""


@dataclass(frozen=True)
class Attribute:
    """One attribute of an operator.

    Attributes:
        name: Its name in the node.
        kind: ``int`` (INT) or ``float`` (FLOAT).
        default: The value of an omitted attribute; None: it is required.
        minimum: The smallest value allowed.
        maximum: The largest value allowed.
        doc: Its meaning.
    """

    name: str
    kind: Literal["int", "float"]
    default: int | float | None
    minimum: int | float
    maximum: int | float
    doc: str

    def check(self, owner: str, value: object) -> int | float:
        """Return ``value`` as this attribute's type.

        Raises:
            NystraError: The type or the range is wrong.
        """
        checked = self._convert(value)
        if checked is None:
            expected = "an integer" if self.kind == "int" else "a finite number"
            raise NystraError(f"{owner}: {self.name} is {value!r}; expected {expected}")
        if not self.minimum <= checked <= self.maximum:
            if self.name == "revision":
                raise NystraError(
                    f"{owner}: the node has revision {checked}, this nystra supports revision "
                    f"{REVISION}; use the nystra version that exported the model, or a newer one; "
                    "see docs/compatibility.md"
                )
            raise NystraError(
                f"{owner}: {self.name} is {checked}; expected {self.minimum} to {self.maximum}"
            )
        return checked

    def _convert(self, value: object) -> int | float | None:
        try:
            if self.kind == "int":
                return operator.index(value)  # type: ignore[arg-type]
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return None
        return number if math.isfinite(number) else None


@dataclass(frozen=True)
class OperatorSchema:
    """An operator as a node: names, order and limits of its inputs and attributes.

    Attributes:
        name: The node type, unique by itself (TensorRT ignores the domain).
        doc: What it computes.
        inputs: Names of the inputs, none of them optional.
        outputs: Names of the outputs.
        attributes: The attributes, ``revision`` last.
        types: Element types of T.
        int32: The inputs and outputs that are int32; all others are of type T.
        relations: Conditions on several attributes, checked in this order.
        limits: Numbers that its kernels are built for.
        plugin: The operator whose CUDA kernel and TensorRT plugin compute it, or a part of its
            body; None: a GPU runs the body alone.
    """

    name: str
    doc: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    types: tuple[str, ...] = ("float", "float16", "bfloat16")
    int32: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    limits: tuple[Limit, ...] = ()
    plugin: str | None = None

    def validate(self, attributes: Mapping[str, object]) -> Attributes:
        """Return all attributes of a node, defaults filled in and types converted.

        Args:
            attributes: Attributes of the node; ``plugin_version`` and ``plugin_namespace`` are
                ignored.

        Raises:
            NystraError: An attribute is unknown, missing or out of range, the attributes do not
                fit together, or the node is of another revision.
        """
        declared = {attribute.name for attribute in self.attributes}
        named = {name: v for name, v in attributes.items() if name not in PLUGIN_ATTRIBUTES}
        if unknown := sorted(named.keys() - declared):
            raise NystraError(
                f"{self.name}: unknown attribute {', '.join(unknown)}; "
                f"expected {', '.join(a.name for a in self.attributes)}"
            )
        checked: Attributes = {}
        for attribute in reversed(self.attributes):  # revision first: it explains why others differ
            value = named.get(attribute.name, attribute.default)
            if value is None:
                raise NystraError(f"{self.name}: attribute {attribute.name} is missing")
            checked[attribute.name] = attribute.check(self.name, value)
        ordered = {attribute.name: checked[attribute.name] for attribute in self.attributes}
        for relation in self.relations:
            relation.check(self.name, ordered)
        return ordered


REVISION_ATTRIBUTE = Attribute(
    "revision", "int", REVISION, REVISION, REVISION, "the meaning of the operator"
)


def node_attributes(name: str, **attributes: object) -> dict[str, int | float | str]:
    """Return every attribute that a node of the operator ``name`` must carry.

    Args:
        name: The node type, such as ``NystraPinv``.
        **attributes: The values that differ from the defaults or have none.

    Returns:
        All attributes of the schema with ``revision``, and ``plugin_version`` and
        ``plugin_namespace`` (kernels and plugins see no defaults of a function).

    Raises:
        NystraError: The operator is unknown or the schema refuses the attributes.
    """
    from . import find_schema

    return {**find_schema(name).validate(attributes), **PLUGIN_ATTRIBUTES}
