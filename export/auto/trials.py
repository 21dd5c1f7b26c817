"""Runs of whole plans, recorded one by one: an interrupted search continues.

``<checkpoint>.auto.json`` next to the model file. It is kept: a choice for another budget reuses
it. It belongs to one checkpoint, and its entries to images, window and version.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ... import __version__
from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.files.writing import atomic_write_bytes
from ...core.json_text import is_number, read_json, require_keys, require_version, stable_json
from ...models.facts import Facts
from ...models.loading import LoadedModel
from ...runtime.metrics.measures import clipped_psnr
from ..attention.mechanism import Mechanism
from ..attention.site import neutral, swap
from ..load.images import Images
from ..pytorch.network_session import NetworkSession
from .costs import CostTable, is_table, parse_costs

SCHEMA_VERSION = 1
_PLANS = "plans"
_KEYS = ("schema_version", "source_sha256", "costs", _PLANS)

_ADVICE = "give `overwrite` to measure again and replace it, or choose another `output`"


@dataclass(frozen=True, eq=False)
class UniformPlan:
    """One mechanism at every site that it serves and makes faster.

    Attributes:
        name: The mechanism in text.
        sites: Path of each site -> its mechanism.
        seconds: Path of each site -> its seconds.
    """

    name: str
    sites: Mapping[str, Mechanism]
    seconds: Mapping[str, float]

    def time(self) -> float:
        """Return the seconds of all sites."""
        return sum(self.seconds.values())


class Tried(NamedTuple):
    """Mean squared change of the output by a plan, the range taken as 1.

    Attributes:
        seen: Mean over the images of the choice.
        held_out: Mean over the held-out images.
    """

    seen: float
    held_out: float

    @property
    def worst(self) -> float:
        """The larger one, which has to keep the budget."""
        return max(self)


class Record:
    """The file and its content.

    Attributes:
        costs: The latest costs, or None.
        plans: Key of images and the like -> text of a choice -> its changes, seen and held out.
    """

    def __init__(self, folder: Path, loaded: LoadedModel, *, replace: bool) -> None:
        """Read earlier measurements, if the file exists.

        Args:
            folder: The folder of the file.
            loaded: The network.
            replace: Begin again if the file belongs to something else.

        Raises:
            NystraError: The file belongs to another checkpoint, or was not written by nystra.
        """
        self.costs: CostTable | None = None
        self.plans: dict[str, dict[str, Sequence[float]]] = {}
        self._path = folder / f"{loaded.checkpoint.path.stem}.auto.json"
        self._sha256 = loaded.checkpoint.sha256
        if self._path.exists():
            try:
                self._read(read_json(self._path, "what was measured"))
            except NystraError as error:
                if not replace:
                    raise NystraError(f"{error}: {_ADVICE}") from error

    def _read(self, document: Any) -> None:
        where = f"what was measured, {self._path}"
        document = require_version(document, where, SCHEMA_VERSION, "it was not written by nystra")
        require_keys(document, where, _KEYS, _KEYS)
        if document["source_sha256"] != self._sha256:
            raise NystraError(
                f"{where} is of another checkpoint ({document['source_sha256']!r:.14}..., this one "
                f"is {self._sha256[:12]}...)"
            )
        if not is_table(document[_PLANS], _is_pair):
            raise NystraError(f"{where}: {_PLANS!r} has values that are not pairs of numbers")
        if document["costs"] is not None:
            self.costs = parse_costs(document["costs"], where)
        self.plans = document[_PLANS]

    def write(self) -> None:
        """Write the file, or raise NystraError."""
        costs = None if self.costs is None else self.costs.as_dict()
        values = (SCHEMA_VERSION, self._sha256, costs, self.plans)
        atomic_write_bytes(self._path, stable_json(dict(zip(_KEYS, values, strict=True))))


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and all(is_number(x) and x >= 0 for x in value)
    )


class Trials:
    """Runs plans on all images against the network as trained, each plan once."""

    def __init__(
        self,
        loaded: LoadedModel,
        images: Images,
        record: Record,
        progress: Callable[[str], None],
    ) -> None:
        """Begin without runs.

        Args:
            loaded: The network.
            images: The images.
            record: Earlier runs, to which new ones are added.
            progress: Called with the number, the percentage and the remaining time of runs.
        """
        self._network, self._facts, self._images = loaded.network, loaded.facts, images
        self._record, self._progress = record, progress
        self._known = record.plans.setdefault(_fingerprint(loaded, images), {})
        self._exact: dict[str, Array] = {}
        self._run, self._spent = 0, 0.0

    def __call__(self, plan: UniformPlan, to_come: int) -> Tried:
        """Return the change by a plan.

        Args:
            plan: The plan.
            to_come: How many plans follow, this one included.
        """
        key = "; ".join(f"{path}: {mechanism}" for path, mechanism in plan.sites.items())
        if key not in self._known:
            self._announce(to_come)
            start = time.monotonic()
            self._known[key] = self._changes(plan.sites)
            self._record.write()
            self._run, self._spent = self._run + 1, self._spent + time.monotonic() - start
        return Tried(*self._known[key])

    def _announce(self, to_come: int) -> None:
        """Report the next run: ``37/100 try plan 12, about 2 min 05 s left``."""
        share = min(100, 1 + 100 * self._run // (self._run + to_come))
        left = ""
        if self._run:
            minutes, seconds = divmod(round(self._spent / self._run * to_come), 60)
            left = f", about {f'{minutes} min {seconds:02}' if minutes else seconds} s left"
        self._progress(f"{share}/100 try plan {self._run + 1}{left}")

    def _changes(self, plan: Mapping[str, Mechanism]) -> Tried:
        if not self._exact:
            self._exact = self._outputs(neutral(self._network))
        changes: dict[bool, list[float]] = {False: [], True: []}
        for name, output in self._outputs(plan).items():
            held = name in self._images.held_out
            changes[held].append(change_of(self._facts, output, self._exact[name]))
        return Tried(*(sum(part) / len(part) for part in changes.values()))

    def _outputs(self, plan: Mapping[str, Mechanism]) -> dict[str, Array]:
        session = NetworkSession(swap(self._network, plan, "operator"))
        return {name: session(*feeds.values()) for name, feeds in self._images.samples.items()}


def change_of(facts: Facts, got: Array, expected: Array) -> float:
    """Return the mean squared difference of outputs, as the PSNR takes it: clipped, range 1.

    It is 1, the largest possible value, if one is NaN.
    """
    psnr = clipped_psnr(got, expected, *(facts.outputs[0].range or (0.0, 1.0)))
    return 1.0 if math.isnan(psnr) else 10.0 ** (-psnr / 10.0)


def _fingerprint(loaded: LoadedModel, images: Images) -> str:
    """Return a key of everything other than the checkpoint on which measured changes depend."""
    parts = [__version__, loaded.facts.window, loaded.hyper, images.held_out]
    digest = hashlib.sha256(stable_json(parts))
    for name, feeds in images.samples.items():
        digest.update(name.encode())
        for array in feeds.values():
            digest.update(str(array.shape).encode())
            digest.update(array.tobytes())
    return digest.hexdigest()[:16]
