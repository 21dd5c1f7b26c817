"""Finds the network in what trainers save: dictionaries around it, prefixes, other networks.

By trial: a state dict is the network if its keys are those of a known one. The names around it tell
nothing, except that of a moving average.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ...core.errors import CheckpointError
from ...core.text import first_named
from ..registry import nearness, read_by_another, recognize
from .averages import averages_of, find_unnamed_average, is_averaged, is_trained_beside
from .holders import holders
from .pickle_values import Standin
from .rebuilding import MAX_TENSORS, Unreadable
from .tensor_checks import check_budget, not_plain
from .unwrapping import Leaf, Leaves, unwrap

_TRAINING_ONLY = frozenset(
    (
        *("net_d", "netD", "discriminator", "disc", "D", "loss", "loss_fn", "criterion", "metric"),
        *("metrics", "perceptual", "vgg", "lpips", "optimizer", "data_preprocessor", "epoch"),
        *("n_averaged", "num_updates", "initted", "step", "steps", "step_counter", "global_step"),
        *("iter", "iteration", "total_ops", "total_params"),
    )
)
"""Names of tensors that only training needs."""

_OF_LAYERS = frozenset(("total_ops", "total_params"))
"""Those that every layer may have: counts of thop."""

_TOP = "its top level"
_DEEPEST = 3  # names before a part that is a network, common ones aside
_DEEPEST_ELSEWHERE = 2
_LONGEST_CHAIN = 8
_FEWEST = 2  # tensors of a network
_MAX_TRIALS = 1000
_MAX_ELSEWHERE = 100
_SMALLEST_SHARE = 8  # of all tensors: their conditions are met by chance, too
_MAX_TO_COMPARE = 40
_LONGEST_KEY = 400
_MAX_NAMES = 8


@dataclass(frozen=True)
class Criteria:
    """The network that is searched for.

    Attributes:
        fits: Whether a state dict has its keys.
        nearness: How many of its keys a state dict has, 0 to 1: for messages if none fits.
        elsewhere: Whether a library reads a state dict; it may remove wrappers by itself.
    """

    fits: Callable[[Mapping[str, Tensor]], bool]
    nearness: Callable[[Mapping[str, Tensor]], float]
    elsewhere: Callable[[Mapping[str, Tensor]], bool] = lambda _: False


ANY_NETWORK = Criteria(recognize, nearness, read_by_another)
"""Any network that nystra or a library in its table supports."""


@dataclass(frozen=True)
class _Candidate:
    """A network in a file: its name there, the names around it, its tensors, and what is left."""

    name: str
    wrapper: str
    state: Leaves
    ignored: tuple[str, ...] = ()


@dataclass
class _Search:
    criteria: Criteria
    trials: int = 0
    trials_elsewhere: int = 0
    tried: list[tuple[str, Leaves]] = field(default_factory=list)

    def fits(self, state: Any, wrapper: str) -> bool:
        self.trials += 1
        if self.trials <= _MAX_TO_COMPARE:
            self.tried.append((wrapper, state))
        return self.trials <= _MAX_TRIALS and self.criteria.fits(state)

    def elsewhere(self, state: Any) -> bool:
        self.trials_elsewhere += 1
        return self.trials_elsewhere <= _MAX_ELSEWHERE and self.criteria.elsewhere(state)


def find_network(
    content: Any, path: Path, file_bytes: int, criteria: Criteria, chosen: str | None = None
) -> tuple[dict[str, Tensor], str, tuple[str, ...]]:
    """Return the state dict of the network in the content of a checkpoint.

    Args:
        content: The content of the file: a state dict, or dictionaries, lists and objects around.
        path: The file, for messages.
        file_bytes: Its size, which limits what its tensors may take together.
        criteria: The network.
        chosen: The name of one of several networks in the file.

    Returns:
        The tensors by key, as the network has them; the names that the state dict stood under,
        joined by ``/``; and sentences that say what was chosen or left out. If no known network is
        there, the state dict that is nearest to one.

    Raises:
        CheckpointError: There are no tensors, or several networks and no way to tell which is
            meant, or tensors are not plain or take too much memory.
    """
    inside = holders(content)
    if not inside:
        if isinstance(content, dict) and not content:
            raise CheckpointError(f"{path} holds no tensors: save the state dict of the network")
        kind = content.name if isinstance(content, Standin) else type(content).__name__
        keys = f": its keys are {sorted(content)[:_MAX_NAMES]}" if isinstance(content, dict) else ""
        raise CheckpointError(f"{path} holds no tensors by name, but a {kind}{keys}")
    for state in inside.values():
        _check_keys(state, path)
    leaves = itertools.chain.from_iterable(state.values() for state in inside.values())
    check_budget((leaf for leaf in leaves if isinstance(leaf, Tensor)), file_bytes, path)
    search = _Search(criteria)
    candidates = _in_all(inside, _choose_way(search))
    if not candidates or any(_names(one.ignored) - _TRAINING_ONLY for one in candidates):
        deepest = 0 if candidates else _DEEPEST  # a whole that a library reads, before a part
        candidates = _in_all(inside, _of_libraries(search, deepest)) or candidates
    if not candidates:
        nearest = max(search.tried, key=lambda each: criteria.nearness(each[1]))  # type: ignore[arg-type]
        candidates = [_Candidate("", *nearest)]
    averages = [
        _Candidate(average.name, one.wrapper, average.state, one.ignored)
        for one in candidates
        for average in averages_of(one.state, inside)
    ]
    one, notes = _choose(candidates + averages, path, chosen)
    if not is_averaged(one.name) and (name := find_unnamed_average(inside)):
        notes += (f"{path.name}: ignored {name}, whose moving averages name no tensors of it",)
    return _tensors(one.state, path), one.wrapper, notes


@dataclass(frozen=True)
class _Way:
    """A way to find networks in a state dict.

    Attributes:
        forms: The state dicts to try at a level, the best first.
        fits: Whether one of them, with the names around it, is a network.
        deepest: Names before a part that is tried.
        share: A part needs this fraction (1 / share) of the tensors; None: any number.
    """

    forms: Callable[[_Level], tuple[Leaves, ...]]
    fits: Callable[[Leaves, str], bool]
    deepest: int
    share: int | None = None


def _choose_way(search: _Search) -> _Way:
    def forms(level: _Level) -> tuple[Leaves, ...]:
        unwrapped = (unwrap(level.weights, parallel=parallel) for parallel in (True, False))
        return (*unwrapped, level.complete)

    return _Way(forms, search.fits, _DEEPEST)


def _of_libraries(search: _Search, deepest: int) -> _Way:
    """Return how networks are found that a library reads; it may remove wrappers by itself."""

    def forms(level: _Level) -> tuple[Leaves, ...]:
        unwrapped = (unwrap(level.weights, parallel=parallel) for parallel in (False, True))
        return (level.complete, level.weights, *unwrapped)

    deepest = min(deepest, _DEEPEST_ELSEWHERE)
    return _Way(forms, lambda form, _: search.elsewhere(form), deepest, _SMALLEST_SHARE)


def _in_all(inside: Mapping[str, Leaves], way: _Way) -> list[_Candidate]:
    return [one for name, state in inside.items() for one in _networks(name, name, state, way)]


def _networks(
    name: str, wrapper: str, state: Leaves, way: _Way, depth: int = 0
) -> Iterator[_Candidate]:
    """Yield the networks in a state dict: it, without a common prefix, or parts of it."""
    level = _Level("", state, state, ())
    for level in _levels(state):
        for form in _different(*way.forms(level)):
            if way.fits(form, wrapper):
                ignored = () if form is level.complete else level.ignored
                yield _Candidate(_join(name, level.prefix), wrapper, form, ignored)
                return
    if depth < way.deepest:
        yield from _parts(
            name,
            level,
            lambda label, part: _networks(label, wrapper, part, way, depth + 1),
            len(level.weights) // way.share if way.share else 0,
        )


@dataclass(frozen=True)
class _Level:
    """A state dict without a prefix: all of it, and without tensors that only training needs."""

    prefix: str
    complete: Leaves
    weights: Leaves
    ignored: tuple[str, ...]


def _levels(state: Leaves) -> Iterator[_Level]:
    """Yield a state dict as it is, then without the first names that all its keys have."""
    prefix = ""
    ignored: tuple[str, ...] = ()
    for _ in range(_LONGEST_CHAIN):
        weights = {key: value for key, value in state.items() if not _of_training(key)}
        if weights and len(weights) < len(state):
            ignored += tuple(
                sorted({prefix + _of_training(key) for key in state.keys() - weights.keys()})
            )
        else:
            weights = dict(state)
        yield _Level(prefix, state, weights, ignored)
        name = _first(next(iter(weights), ""))
        if not name or any(not key.startswith(f"{name}.") for key in weights):
            return
        prefix += f"{name}."
        state = {key[len(name) + 1 :]: value for key, value in weights.items()}


def _parts(
    name: str,
    level: _Level,
    search: Callable[[str, Leaves], Iterator[_Candidate]],
    fewest: int = 0,
) -> Iterator[_Candidate]:
    """Yield the networks in the parts of a state dict, each with the names of what it lacks."""
    parts: dict[str, dict[str, Leaf]] = {}
    for key, value in level.weights.items():
        first, _, rest = key.partition(".")
        parts.setdefault(first, {})[rest] = value
    candidates: list[_Candidate] = []
    ignored: list[str] = []
    for first, part in parts.items():
        inner: list[_Candidate] = []
        if len(part) >= max(fewest, _FEWEST) and not first.isdigit():
            inner = list(search(_join(name, level.prefix + first), part))
        candidates += inner
        if not inner:
            ignored.append(level.prefix + first)
    lacking = (*level.ignored, *ignored)
    yield from (replace(one, ignored=(*lacking, *one.ignored)) for one in candidates)


def _choose(
    candidates: list[_Candidate], path: Path, chosen: str | None
) -> tuple[_Candidate, tuple[str, ...]]:
    names = sorted(one.name or _TOP for one in candidates)
    if chosen is not None:
        candidates = [
            one for one in candidates if chosen in (one.name, one.name.rpartition("/")[2])
        ]
        if len(candidates) != 1:
            raise CheckpointError(
                f"{path} holds {', '.join(names[:_MAX_NAMES])}; state_dict is {chosen!r:.80}, "
                "expected one of them"
            )
    averaged = [one for one in candidates if is_averaged(one.name)]
    if not averaged:
        trained = [one for one in candidates if is_trained_beside(one.name)]
        averaged = [one for one in candidates if one not in trained] if trained else []
    preferred = _distinct(averaged or candidates)
    if len(preferred) > 1:
        names = sorted(one.name or _TOP for one in preferred)
        raise CheckpointError(
            f"{path} holds several networks: {', '.join(names[:_MAX_NAMES])}. Give `hyper` "
            f"state_dict={names[0]} or another of them, or save the state dict of one with "
            "safetensors.torch.save_file"
        )
    (one,) = preferred
    notes: list[str] = []
    others = sorted(each.name or _TOP for each in candidates if each is not one)
    if averaged and others:
        listed = " and ".join([one.name, *others])
        notes.append(
            f"{path.name} holds {listed}: using {one.name}, the moving average of the weights"
        )
    if one.ignored:
        names_ignored = first_named(one.ignored, _MAX_NAMES)
        advice = (
            "; if they are part of your network, give its code as `module`"
            if _names(one.ignored) - _TRAINING_ONLY
            else ""
        )
        notes.append(f"{path.name}: ignored the tensors of {names_ignored}{advice}")
    return one, tuple(notes)


def _distinct(candidates: list[_Candidate]) -> list[_Candidate]:
    distinct = {}
    for one in reversed(candidates):
        tensors = [each for each in one.state.values() if isinstance(each, Tensor)]
        distinct[tuple(tensor.data_ptr() for tensor in tensors)] = one
    return list(reversed(distinct.values()))


def _check_keys(state: Leaves, path: Path) -> None:
    if len(state) > MAX_TENSORS:
        raise CheckpointError(f"{path} holds {len(state)} tensors, expected {MAX_TENSORS} at most")
    for key in state:
        if not key.isprintable() or len(key) > _LONGEST_KEY:
            raise CheckpointError(f"{path}: {key[:80]!r} is not the name of a tensor")


def _tensors(state: Leaves, path: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for key, value in state.items():
        if isinstance(value, Unreadable):
            raise not_plain(path, key, value.kind)
        tensors[key] = value
    return tensors


def _different(*states: Leaves) -> list[Leaves]:
    return list({id(state): state for state in states}.values())


def _join(name: str, prefix: str) -> str:
    prefix = prefix.rstrip(".")
    return f"{name}/{prefix}" if name and prefix else name or prefix


def _first(key: str) -> str:
    return key.partition(".")[0]


def _of_training(key: str) -> str:
    first, last = _first(key), key.rpartition(".")[2]
    if first in _TRAINING_ONLY:
        return first
    return last if last in _OF_LAYERS else ""


def _names(paths: tuple[str, ...]) -> set[str]:
    return {name.rpartition(".")[2] for name in paths}
