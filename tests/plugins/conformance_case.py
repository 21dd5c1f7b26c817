"""One row of the conformance table."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np

from nystra.plugins.operators import OPERATORS, find_schema
from nystra.plugins.operators.schema import PLUGIN_ATTRIBUTES

EVERYWHERE = frozenset({"torch", "cpu"})

Outputs = np.ndarray | tuple[np.ndarray, ...]
"""What a row gives: the array of an operator with one output, else one array an output."""


@dataclass(frozen=True)
class Case:
    """One row: an operator, its attributes and inputs.

    ``values`` says how the first input is filled; ``refused_by`` names the families of columns
    that must refuse the row (the reference always must); no other column runs it.
    """

    operator: str
    attributes: dict[str, int | float]
    shape: tuple[int, ...]
    table: tuple[int, ...] | None = None
    values: str = "normal"
    dtypes: tuple[str, ...] = ("float32", "float16")
    refused_by: frozenset[str] = field(default_factory=frozenset)

    @property
    def id(self) -> str:
        parts = [f"{name}={value:g}" for name, value in self.attributes.items()]
        size = "x".join(map(str, self.shape))
        return f"{self.operator}[{size} {self.values} {' '.join(parts)}]"

    @property
    def folder(self) -> str:
        return OPERATORS[self.operator]

    def all_attributes(self) -> dict[str, int | float]:
        """All attributes of the schema, unchecked, since refused rows must reach the kernels."""
        defaults = {
            attribute.name: attribute.default
            for attribute in find_schema(self.operator).attributes
            if attribute.default is not None
        }
        return {**defaults, **self.attributes}

    def node_attributes(self) -> dict[str, int | float | str]:
        return {**self.all_attributes(), **PLUGIN_ATTRIBUTES}

    @property
    def wants_more_shared(self) -> bool:
        """Whether 48 KiB of shared memory may be too small for it."""
        return False

    @property
    def large(self) -> bool:
        """Whether it takes seconds: not in quick runs, nor in the emulator's slow builds."""
        return False

    @property
    def search_entries(self) -> int:
        """Entries of a search's field times its iterations; 0 for other operators."""
        return 0

    def output_shapes(self) -> list[tuple[int, ...]]:
        """The shape of each output; here one, equal to the first input's."""
        return [self.shape]

    def inputs(self, dtype: str) -> list[np.ndarray]:
        """The inputs, drawn from the row itself, rounded to ``dtype``."""
        rng = np.random.default_rng(zlib.crc32(self.id.encode()))
        arrays = [self.first(rng)]
        if self.table is not None:
            arrays.append(rng.standard_normal(self.table))
        return [array.astype(dtype) for array in arrays]

    def first(self, rng: np.random.Generator) -> np.ndarray:
        """The first input."""
        return self.filled(rng.standard_normal(self.shape))

    def filled(self, normal: np.ndarray) -> np.ndarray:
        """Numbers of the kind that ``values`` says, from those of kind ``normal``."""
        if self.values == "negative_zero":
            return np.full(normal.shape, -0.0)
        factors = {"tiny": 1e-4, "large": 6.0, "sharp": 10.0, "huge": 60.0, "zero": 0.0}
        return normal * factors.get(self.values, 1.0)
