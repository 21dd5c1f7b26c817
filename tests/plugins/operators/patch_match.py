"""The tests' record of ``NystraPatchMatch``."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from conformance_case import EVERYWHERE, Case
from operator_tests import OpenNode, OperatorTests


@dataclass(frozen=True)
class PatchMatchCase(Case):
    """A row of the search: ``shape`` is the query's (B, C, H, W).

    ``values`` fills query and key: ``integer``, ``zero`` and ``nan`` (integers and two NaN in
    each) give the same field on every backend for l2 and dot, ``normal`` equal quality.

    Attributes:
        key: Hk and Wk, or C, Hk and Wk.
        masks: Which masks there are, see ``_masks``.
        start: Which starts there are, see ``_start``.
    """

    key: tuple[int, ...] = ()
    masks: str = "none"
    start: str = "none"

    @property
    def id(self) -> str:
        key = "x".join(map(str, self.key))
        return f"{super().id[:-1]} key={key} masks={self.masks} start={self.start}]"

    @property
    def exact(self) -> bool:
        """Whether every backend gives the same field."""
        return self.values != "normal" and self.all_attributes()["metric"] != 2

    @property
    def search_entries(self) -> int:
        return int(np.prod(self.output_shapes()[0])) * int(self.all_attributes()["iterations"])

    def output_shapes(self) -> list[tuple[int, ...]]:
        batch, _, height, width = self.shape
        return [(batch, int(self.all_attributes()["neighbors"]), height, width)] * 2

    def inputs(self, dtype: str) -> list[np.ndarray]:
        rng = np.random.default_rng(zlib.crc32(self.id.encode()))
        key_shape = (self.shape[0], *((self.shape[1], *self.key)[-3:]))
        maps = [self._map(rng, shape) for shape in (self.shape, key_shape)]
        masks = self._masks(rng, self.shape, key_shape)
        arrays = [array.astype(dtype) for array in (*maps, *masks)]
        return [*arrays, self._start(rng, key_shape).astype(np.int32)]

    def _map(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if self.values == "normal":
            return rng.standard_normal(shape)
        values = rng.integers(-4, 5, shape) * (self.values != "zero") * 1.0
        if self.values == "nan":
            values.reshape(-1)[rng.integers(0, values.size, 2)] = np.nan
        return values

    def _masks(
        self, rng: np.random.Generator, query: tuple[int, ...], key: tuple[int, ...]
    ) -> list[np.ndarray]:
        """``full``: values of all kinds at every pixel; ``rows``: of a row and of a column;
        ``few``: two keys are left; ``empty``: none is left in the last image; ``image``: one value
        an image, 0 for the keys of the first and the queries of the last."""
        everywhere = np.ones((1, 1, 1, 1))
        if self.masks == "full":
            kinds = np.array([1.0, 0.5, 2.0, 1.0, 0.0, -0.0, -1.0, np.nan])
            return [kinds[rng.integers(0, 8, (size[0], 1, *size[2:]))] for size in (query, key)]
        if self.masks == "rows":
            rows, cols = np.ones((1, 1, query[2], 1)), np.ones((key[0], 1, 1, key[3]))
            rows[:, :, ::3] = 0
            cols[:, :, :, 1::4] = 0
            return [rows, cols]
        if self.masks == "image":
            images = np.arange(query[0]).reshape(-1, 1, 1, 1)
            return [1.0 * (images < query[0] - 1), 1.0 * (images > 0)]
        if self.masks == "few":
            few = np.zeros((1, 1, *key[2:]))
            few[0, 0, 0, -1] = few[0, 0, -1, 0] = 1
            return [everywhere, few]
        if self.masks == "empty":
            mask = np.ones((key[0], 1, *key[2:]))
            mask[-1] = 0
            return [everywhere, mask]
        return [everywhere, everywhere]

    def _start(self, rng: np.random.Generator, key: tuple[int, ...]) -> np.ndarray:
        """``full``: of every entry, some of them no key's; ``row``: one for all pixels of an
        entry; ``same``: one for all entries of a pixel."""
        batch, k, height, width = self.output_shapes()[0]
        shapes = {
            "full": (batch, k, height, width),
            "row": (1, k, 1, 1),
            "same": (batch, 1, height, width),
        }
        if self.start == "none":
            return np.full((1, 1, 1, 1), -1)
        start = rng.integers(-2, key[2] * key[3] + 2, shapes[self.start])
        start.reshape(-1)[:1] = np.iinfo(np.int32).max
        return start


def _row(
    shape: tuple[int, int, int, int],
    key: tuple[int, ...],
    patch_size: int,
    neighbors: int,
    iterations: int = 2,
    metric: int = 0,
    seed: int = 0,
    values: str = "integer",
    masks: str = "none",
    start: str = "none",
    dtypes: tuple[str, ...] = ("float32", "float16"),
    refused_by: frozenset[str] = frozenset(),
    **rest: int,
) -> PatchMatchCase:
    attributes: dict[str, int | float] = {
        "patch_size": patch_size,
        "iterations": iterations,
        "neighbors": neighbors,
        "metric": metric,
        "seed": seed,
        **rest,
    }
    return PatchMatchCase(
        "NystraPatchMatch",
        attributes,
        shape,
        None,
        values,
        dtypes,
        refused_by,
        key,
        masks,
        start,
    )


def _refused(**changes: int) -> PatchMatchCase:
    attributes = {"patch_size": 3, "neighbors": 2, **changes}
    return _row((1, 2, 4, 5), (5, 4), refused_by=EVERYWHERE, dtypes=("float32",), **attributes)


def _cases() -> list[Case]:
    """Sizes around vector widths, every metric, masks, starts, k above the number of keys."""
    return [
        *_sizes(),
        *_neighbors(),
        *_rounds(),
        *_fields(),
        *_values(),
        *_quality(),
        *_cosine(),
        *_refusals(),
    ]


def _sizes() -> list[PatchMatchCase]:
    """Around vector widths and tiles, and one above the table of random numbers."""
    return [
        _row((1, 1, 1, 1), (1, 1), 1, 1),
        _row((1, 3, 1, 1), (5, 7), 7, 4, metric=1),
        _row((1, 2, 6, 9), (1, 1), 3, 3),
        _row((1, 1, 1, 40), (1, 23), 5, 2),
        _row((1, 1, 40, 1), (19, 1), 3, 2, metric=1),
        _row((2, 3, 9, 7), (8, 11), 3, 3, seed=1),
        _row((3, 4, 7, 15), (6, 9), 5, 1, seed=4095),
        _row((1, 16, 12, 16), (12, 16), 7, 3, seed=77),
        _row((2, 17, 5, 17), (9, 33), 3, 5, metric=1, seed=2),
        _row((1, 33, 6, 31), (11, 5), 3, 2),
        _row((1, 5, 10, 33), (20, 18), 1, 8, metric=1),
        _row((1, 3, 17, 34), (33, 20), 7, 3),
        _row((1, 2, 5, 9), (7, 6), 23, 2, iterations=1, seed=9),
        _row((1, 1, 9, 30), (12, 25), 9, 3, metric=1, iterations=1),
        _row((1, 3, 1, 4100), (20, 21), 1, 1, iterations=1),  # the table has 4096 entries
        _row((1, 3, 4099, 1), (30, 9), 1, 1, metric=1, iterations=1),
    ]


def _neighbors() -> list[PatchMatchCase]:
    """Numbers of matches, also above the number of keys."""
    neighbors = [
        _row((1, 2, 6, 7), (7, 6), 3, k, metric=k % 2, seed=k) for k in (4, 7, 15, 16, 17, 31, 32)
    ]
    neighbors += [
        _row((2, 2, 5, 6), (2, 3), 3, 8),
        _row((2, 2, 5, 6), (5, 6), 3, 32, metric=1),
    ]
    return neighbors


def _rounds() -> list[PatchMatchCase]:
    """Numbers of iterations."""
    return [
        _row((1, 3, 5, 6), (7, 6), 3, 2, iterations=n, metric=n % 2, seed=n)
        for n in (1, 2, 3, 4, 5, 6, 7, 8, 16)
    ]


def _fields() -> list[PatchMatchCase]:
    """Masks and starts."""
    fields = [
        _row((2, 3, 9, 10), (11, 8), 5, 3, metric=metric, masks=masks, start=start)
        for metric, masks, start in (
            (0, "full", "none"),
            (1, "full", "full"),
            (0, "rows", "same"),
            (1, "few", "row"),
            (0, "few", "full"),
            (0, "empty", "full"),
            (0, "none", "full"),
            (1, "none", "row"),
            (1, "full", "same"),
        )
    ]
    fields.append(_row((3, 2, 6, 5), (5, 7), 3, 3, masks="image"))
    return fields


def _values() -> list[PatchMatchCase]:
    """Zeros and NaN."""
    return [
        _row((2, 2, 7, 8), (8, 7), 3, 3, metric=metric, values=kind, masks=masks)
        for metric, kind, masks in (
            (0, "zero", "none"),
            (1, "zero", "full"),
            (0, "nan", "none"),
            (1, "nan", "full"),
        )
    ]


def _quality() -> list[PatchMatchCase]:
    """Real numbers, where quality is compared."""
    quality = [
        _row(
            (2, 3, 12, 13),
            (14, 11),
            patch_size,
            3,
            metric=metric,
            values="normal",
            masks=masks,
            start=start,
        )
        for patch_size, metric, masks, start in (
            (7, 0, "none", "none"),
            (3, 1, "none", "none"),
            (5, 2, "none", "none"),
            (1, 2, "none", "full"),
            (3, 0, "full", "full"),
            (3, 2, "few", "none"),
            (7, 2, "empty", "same"),
        )
    ]
    quality += [
        _row((1, 8, 16, 17), (18, 15), 7, 3, iterations=3, metric=metric, values="normal")
        for metric in (0, 1, 2)
    ]
    return quality


def _cosine() -> list[PatchMatchCase]:
    """The metric whose fields are compared by quality for any values."""
    return [
        _row((1, 2, 7, 8), (8, 7), 3, 3, metric=2, values=kind)
        for kind in ("integer", "zero", "nan")
    ]


def _refusals() -> list[PatchMatchCase]:
    """Attributes and shapes beyond the limits."""
    return [
        _refused(patch_size=4),
        _refused(patch_size=0),
        _refused(patch_size=25),
        _refused(iterations=0),
        _refused(iterations=17),
        _refused(neighbors=0),
        _refused(neighbors=33),
        _refused(metric=3),
        _refused(metric=-1),
        _refused(seed=4096),
        _refused(seed=-1),
        _row((1, 2, 4, 5), (3, 5, 4), 3, 2, refused_by=EVERYWHERE, dtypes=("float32",)),
        _row((1, 2, 4, 5), (5, 4), 3, 2, refused_by=frozenset({"cpu"}), revision=2),
    ]


TESTS = OperatorTests(
    cases=_cases(),
    base=PatchMatchCase(
        "NystraPatchMatch",
        {"patch_size": 3, "iterations": 2, "neighbors": 2, "metric": 0, "seed": 5},
        (1, 2, 20, 21),
        values="integer",
        key=(20, 22),
    ),
    changes={
        "patch_size": {"patch_size": 5},
        "iterations": {"iterations": 3},
        "neighbors": {"neighbors": 3},
        "metric": {"metric": 1},
        "seed": {"seed": 6},
    },
    attributes={"patch_size": 3, "iterations": 2, "neighbors": 2},
    shapes=[(2, 3, 6, 5), (2, 3, 4, 7), (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)],
    open_node=OpenNode(
        [
            ("b", 4, "h", "w"),
            ("b", 4, "r", "c"),
            (1, 1, "h", "w"),
            ("b", 1, "r", "c"),
            (1, 1, 1, 1),
        ],
        [("b", 3, "h", "w")] * 2,
        [
            {"b": 2, "h": 6, "w": 5, "r": 7, "c": 3},
            {"b": 1, "h": 1, "w": 1, "r": 2, "c": 2},
            {"b": 1, "h": 9, "w": 16, "r": 4, "c": 8},
        ],
        {"patch_size": 3, "iterations": 1, "neighbors": 3},
    ),
    fills_workspace=lambda case: np.prod(case.shape) > 100,
)
