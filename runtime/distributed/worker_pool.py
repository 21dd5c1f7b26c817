"""Workers and what they have in hand: work goes to whoever is free, and again where one died."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...core.errors import NystraError
from .worker import Failed, Setup, Worker

Task: TypeAlias = tuple[str, tuple[Any, ...]]
"""A method of `Worker` and its arguments."""

MOST_TRIES = 3
"""Workers that may die over one thing before it is given up."""

_IN_HAND = 2
"""Things of a worker: files of one are read or written while the model runs for the other."""

_PATIENCE = 300.0
"""Seconds until the first worker has loaded the model; a cluster may have to start machines."""


@dataclass
class _Thing:
    """A task under way."""

    place: int
    task: Task
    tries: int = 0
    reference: Any = None


@dataclass
class _Hand:
    """A worker: ``where`` it is once it has loaded the model, and the things it works on."""

    actor: Any
    opening: Any
    where: str | None = None
    things: list[_Thing] = field(default_factory=list)

    def can_take(self, *, alone: bool) -> bool:
        """Return whether there is room for a thing, which may have to have a worker for itself."""
        if self.where is None or any(thing.tries > 1 for thing in self.things):
            return False
        return len(self.things) < (1 if alone else _IN_HAND)


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    Attributes:
        place: Which one, counted from 0.
        value: What the worker returned.
        where: The worker, in words.
        tries: How many workers it took.
    """

    place: int
    value: Any
    where: str
    tries: int


class Crew:
    """Workers on a cluster.

    Attributes:
        size: How many there are to be.
        lost: How many died.
    """

    def __init__(self, ray: Any, setup: Setup, size: int, *, gpu: bool = False) -> None:
        """Ask for workers; the cluster starts them as it has room.

        Args:
            ray: The module, connected.
            setup: What each of them has to know.
            size: How many there are to be.
            gpu: Each needs a GPU.
        """
        self.size, self.lost = size, 0
        self._ray, self._gpu = ray, gpu
        self._setup, self._threads = ray.put(setup), setup.session.threads
        self._hands: list[_Hand] = []
        self._refused: list[str] = []
        self._deaths_at_start = 0
        self._heard = time.monotonic()
        for _ in range(size):
            self._hire()

    def run(self, tasks: Iterable[Task], *, ordered: bool = False) -> Iterator[Outcome]:
        """Yield what becomes of each task, as it comes or in order.

        Tasks whose worker died go to others, where nothing stands beside them, so that the one to
        blame shows; when `MOST_TRIES` have died over it, its value is `Failed`. Tasks are taken as
        there is room: no more than three for each worker are under way or wait for those before.

        Raises:
            NystraError: No worker is left, or none could be started.
        """
        source = enumerate(tasks)
        again: deque[_Thing] = deque()
        held: dict[int, Outcome] = {}
        first = 0  # of those that have not been yielded, where order counts
        begun = 0
        drained = False
        while True:
            while (hand := self._free_hand(alone=bool(again))) is not None:
                if again:
                    self._give(hand, again.popleft())
                    continue
                if drained or (ordered and begun - first >= 3 * self.size):
                    break
                place, task = next(source, (-1, ("", ())))
                if place < 0:
                    drained = True
                    break
                begun += 1
                self._give(hand, _Thing(place, task))
            if drained and not again and not any(hand.things for hand in self._hands):
                yield from (held.pop(place) for place in sorted(held))
                return
            for outcome in self._heard_of(again):
                held[outcome.place] = outcome
            if not ordered:
                yield from (held.pop(place) for place in sorted(held))
            while ordered and first in held:
                yield held.pop(first)
                first += 1

    def dismiss(self) -> None:
        """End all workers."""
        while self._hands:
            self._ray.kill(self._hands.pop().actor)

    def _hire(self) -> None:
        kind = self._ray.remote(Worker)
        needs = {"num_cpus": self._threads, "num_gpus": 1 if self._gpu else 0}
        how = {**needs, "max_concurrency": _IN_HAND, "scheduling_strategy": "SPREAD"}
        actor = kind.options(**how).remote(self._setup)
        self._hands.append(_Hand(actor, actor.open.remote()))

    def _free_hand(self, *, alone: bool) -> _Hand | None:
        """Return the worker that has least to do, if it can take more."""
        ready = [hand for hand in self._hands if hand.can_take(alone=alone)]
        return min(ready, key=lambda hand: len(hand.things), default=None)

    def _give(self, hand: _Hand, thing: _Thing) -> None:
        name, arguments = thing.task
        thing.tries += 1
        thing.reference = getattr(hand.actor, name).remote(*arguments)
        hand.things.append(thing)

    def _heard_of(self, again: deque[_Thing]) -> Iterator[Outcome]:
        """Wait for a worker to say something, or to die; yield what is done."""
        awaited: dict[Any, tuple[_Hand, _Thing | None]] = {}
        for hand in self._hands:
            awaited |= {thing.reference: (hand, thing) for thing in hand.things}
            if hand.where is None:
                awaited[hand.opening] = hand, None
        if not awaited:
            raise NystraError(self._nobody())
        done, _ = self._ray.wait(list(awaited), num_returns=1, timeout=1.0)
        alive = any(hand.where for hand in self._hands)
        if done or alive:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > _PATIENCE:
            raise NystraError(self._nobody())
        for reference in done:
            hand, thing = awaited[reference]
            try:
                value = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                value = Failed(" ".join(str(error.cause or error).split())[:300])
            except self._ray.exceptions.RayError:
                yield from self._bury(hand, again)
                continue
            if thing is not None:
                hand.things.remove(thing)
                yield Outcome(thing.place, value, hand.where or "", thing.tries)
            elif isinstance(value, Failed):
                self._refused.append(value.error)
                self._hands.remove(hand)
                self._ray.kill(hand.actor)
            else:
                hand.where = value

    def _bury(self, hand: _Hand, again: deque[_Thing]) -> Iterator[Outcome]:
        """Take a worker's things back and hire another one."""
        self.lost += 1
        self._hands.remove(hand)
        self._ray.kill(hand.actor)
        for thing in hand.things:
            if thing.tries < MOST_TRIES:
                again.append(thing)
                continue
            text = f"{thing.tries} workers died over it, the last one at {hand.where}"
            yield Outcome(thing.place, Failed(text), hand.where or "", thing.tries)
        if hand.where is None:
            self._deaths_at_start += 1
        if self._deaths_at_start < MOST_TRIES * self.size:
            self._hire()

    def _nobody(self) -> str:
        """Return why there is no worker, in words."""
        if self._refused:
            return f"no worker could load the model. {self._refused[-1]}"
        if self._deaths_at_start:
            return (
                "the workers die when they load the model: their machines may lack memory. "
                "Give fewer `workers`"
            )
        needs = f"{self._threads} CPUs{' and a GPU' if self._gpu else ''}"
        return (
            f"no worker could start in {_PATIENCE:.0f} s: each needs {needs}, and the cluster "
            f"has {self._ray.available_resources()}. Wait for room, or give fewer `threads`"
        )
