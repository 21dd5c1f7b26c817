"""The queue of the service: order, memory, cancellation, and tiles that share runs."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from nystra.core.errors import NystraError
from nystra.runtime.serving import request_queue
from nystra.runtime.serving.batcher import Batcher
from nystra.runtime.serving.errors import (
    BusyError,
    ClientDisconnectedError,
    ModelFailedError,
    StoppingError,
    TimedOutError,
    TooLargeError,
)
from nystra.runtime.serving.limits import Limits
from nystra.runtime.serving.request_queue import RequestQueue, Work, out_of_time

PATIENCE = 10.0


@pytest.fixture
def queue() -> Iterator[RequestQueue]:
    made = RequestQueue(workers=1, queue=2, memory=100)
    yield made
    made.close(PATIENCE)


class Gate:
    """Work that runs until it is released."""

    def __init__(self, queue: RequestQueue, cost: int = 0) -> None:
        self.begun, self.open = threading.Event(), threading.Event()
        self.work = Work(self._do, cost)
        queue.submit(self.work)

    def _do(self, work: Work[Any]) -> str:
        self.begun.set()
        assert self.open.wait(PATIENCE)
        work.check()
        return "done"


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_work_is_done_in_the_order_it_came(queue: RequestQueue) -> None:
    order: list[int] = []
    gate = Gate(queue)
    assert gate.begun.wait(PATIENCE)
    works = [Work(lambda _, number=number: order.append(number)) for number in range(2)]
    for work in works:
        queue.submit(work)
    assert (queue.waiting, queue.under_way) == (2, 1)
    gate.open.set()
    for work in (gate.work, *works):
        work.future.result(PATIENCE)
    assert order == [0, 1]


def test_a_full_queue_says_when_to_come_again(queue: RequestQueue) -> None:
    gates = [Gate(queue)]
    assert gates[0].begun.wait(PATIENCE)
    gates += [Gate(queue), Gate(queue)]
    with pytest.raises(BusyError, match="2 requests are waiting already") as refused:
        Gate(queue)
    assert refused.value.retry_after == 1  # nothing is known yet of how long one takes
    gates[2].work.cancel(ClientDisconnectedError("away"))  # makes room at once
    gates.append(Gate(queue))
    for gate in gates:
        gate.open.set()
    with pytest.raises(ClientDisconnectedError):
        gates[2].work.future.result(PATIENCE)
    assert gates[3].work.future.result(PATIENCE) == "done"


def test_the_wait_grows_with_what_requests_take() -> None:
    queue = RequestQueue(workers=1, queue=3)
    slow = Work(lambda _: time.sleep(0.6))
    queue.submit(slow)
    slow.future.result(PATIENCE)
    gates = [Gate(queue)]
    assert gates[0].begun.wait(PATIENCE)
    gates += [Gate(queue) for _ in range(3)]
    with pytest.raises(BusyError) as refused:
        Gate(queue)
    assert refused.value.retry_after == 2  # three of 0.6 s
    for gate in gates:
        gate.open.set()
    queue.close(PATIENCE)


def test_memory_bounds_what_is_under_way() -> None:
    queue = RequestQueue(workers=3, queue=5, memory=100)
    with pytest.raises(TooLargeError, match="the limit of the service is 0 MiB"):
        Gate(queue, 101)
    large, small, next_one = Gate(queue, 80), Gate(queue, 60), Gate(queue, 10)
    assert large.begun.wait(PATIENCE)
    assert not small.begun.wait(0.05)
    assert not next_one.begun.is_set()  # it would fit, and does not overtake
    assert queue.bytes_used == 80
    large.open.set()
    assert small.begun.wait(PATIENCE)
    assert next_one.begun.wait(PATIENCE)
    small.open.set()
    next_one.open.set()
    assert queue.close(PATIENCE)
    assert queue.bytes_used == 0


def test_work_that_was_cancelled_ends_with_the_reason(queue: RequestQueue) -> None:
    gate = Gate(queue)
    gate.work.cancel(out_of_time(0.05))
    assert gate.work.cancelled
    gate.open.set()
    with pytest.raises(TimedOutError, match=r"more than 0\.05 s"):
        gate.work.future.result(PATIENCE)


def test_an_error_ends_its_request_alone(queue: RequestQueue) -> None:
    def fail(_: Work[None]) -> None:
        raise ZeroDivisionError

    bad, good = Work(fail), Work(lambda _: 1)
    queue.submit(bad)
    queue.submit(good)
    with pytest.raises(ZeroDivisionError):
        bad.future.result(PATIENCE)
    assert good.future.result(PATIENCE) == 1


def test_closing_ends_what_is_there_and_takes_no_more(queue: RequestQueue) -> None:
    gate, behind = Gate(queue), Gate(queue)
    behind.open.set()
    threading.Timer(0.05, gate.open.set).start()
    assert queue.close(PATIENCE)
    assert (gate.work.future.result(0), behind.work.future.result(0)) == ("done", "done")
    with pytest.raises(StoppingError):
        Gate(queue)


def test_closing_gives_up_after_its_patience(queue: RequestQueue) -> None:
    gate = Gate(queue)
    assert gate.begun.wait(PATIENCE)
    assert not queue.close(0.02)
    gate.open.set()
    with pytest.raises(StoppingError, match="stopped before"):
        gate.work.future.result(PATIENCE)


@pytest.mark.parametrize("name", ["tile", "batch", "max_bytes", "workers"])
def test_limits_let_something_through(name: str) -> None:
    with pytest.raises(NystraError, match=f"`{name}` is 0, expected a .* of 1 .*or more"):
        Limits(**{name: 0})
    with pytest.raises(NystraError, match="`timeout` is 0, expected a number above 0"):
        Limits(timeout=0)
    assert Limits(queue=0, patience=0).queue == 0


class Model:
    """Doubles images, slowly enough for others to queue; records its inputs."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.held, self.free = threading.Event(), threading.Event()

    def __call__(self, images: np.ndarray, **others: np.ndarray) -> np.ndarray:
        self.shapes.append(images.shape)
        self.held.set()
        assert self.free.wait(PATIENCE)
        if (images < 0).any():
            raise NystraError("a negative image")
        return images * 2


def gathered(batcher: Batcher, model: Model, given: list[np.ndarray]) -> list[Any]:
    """Return the futures of jobs that arrived in this order while the model ran another."""
    pool = ThreadPoolExecutor(len(given) + 1)
    first = pool.submit(batcher, Work(lambda _: None), np.zeros((1, 1, 1, 1)))
    assert model.held.wait(PATIENCE)
    futures = []
    for place, images in enumerate(given):
        futures.append(pool.submit(batcher, Work(lambda _: None), images))
        until(lambda: len(batcher._orders) == place + 1)  # noqa: B023
    model.free.set()
    first.result(PATIENCE)
    pool.shutdown()
    return futures


def test_tiles_of_different_requests_share_a_run() -> None:
    model = Model()
    runs: list[int] = []
    batcher = Batcher(model, images=4, on_run=lambda images, _: runs.append(images))
    small = [np.full((1, 1, 2, 2), value) for value in range(5)]
    large = np.full((2, 1, 3, 3), 7)
    given = [small[0], large, *small[1:]]
    for images, future in zip(given, gathered(batcher, model, given), strict=True):
        np.testing.assert_array_equal(future.result(PATIENCE), images * 2)
    assert model.shapes == [(1, 1, 1, 1), (4, 1, 2, 2), (2, 1, 3, 3), (1, 1, 2, 2)]
    assert runs == [1, 4, 2, 1]
    batcher.close()


def test_pixels_bound_a_shared_run() -> None:
    model = Model()
    batcher = Batcher(model, images=8, pixels=9)
    given = [np.zeros((1, 1, 2, 2))] * 3 + [np.zeros((1, 1, 4, 4))]
    for future in gathered(batcher, model, given):
        future.result(PATIENCE)
    assert model.shapes[1:] == [(2, 1, 2, 2), (1, 1, 2, 2), (1, 1, 4, 4)]
    batcher.close()


def test_one_bad_tile_spoils_no_other() -> None:
    model = Model()
    batcher = Batcher(model, images=3)
    bad = np.full((1, 1, 2, 2), -1.0)
    good, failed, also = gathered(batcher, model, [bad + 2, bad, bad + 3])
    assert good.result(PATIENCE).max() == 2
    assert also.result(PATIENCE).max() == 4
    with pytest.raises(ModelFailedError, match="the model failed: a negative image"):
        failed.result(PATIENCE)
    batcher.close()


def test_tiles_of_a_cancelled_request_are_not_run() -> None:
    model = Model()
    batcher = Batcher(model)
    pool = ThreadPoolExecutor(2)
    first = pool.submit(batcher, Work(lambda _: None), np.zeros((1, 1, 1, 1)))
    assert model.held.wait(PATIENCE)
    work = Work(lambda _: None)
    second = pool.submit(batcher, work, np.zeros((1, 1, 2, 2)))
    until(lambda: len(batcher._orders) == 1)
    work.cancel(ClientDisconnectedError("away"))
    model.free.set()
    first.result(PATIENCE)
    with pytest.raises(ClientDisconnectedError):
        second.result(PATIENCE)
    with pytest.raises(ClientDisconnectedError):
        batcher(work, np.zeros((1, 1, 2, 2)))
    batcher.close()
    assert model.shapes == [(1, 1, 1, 1)]
    with pytest.raises(StoppingError):
        batcher(Work(lambda _: None), np.zeros((1, 1, 2, 2)))
    pool.shutdown()


def test_an_idle_queue_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(request_queue, "release_free_memory", released.set)
    queue = RequestQueue(1, 8, 1 << 30)
    small, large = Work[str](lambda work: "done", 1 << 20), Work[str](lambda work: "done", 64 << 20)
    for work, much in ((small, False), (large, True)):
        queue.submit(work)
        work.future.result(PATIENCE)
        assert released.wait(PATIENCE if much else 0.1) is much
    queue.close(PATIENCE)
