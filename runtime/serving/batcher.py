"""Tiles of different requests in one run of a model.

While the model runs, tiles are collected. The next run takes the oldest one, and with it waiting
tiles of the same shape from any request. No run waits for a batch to fill: a single request runs at
once, and many share runs. A request has one call at a time, so that a large image does not block
small ones.
"""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError
from .errors import ModelFailedError, StoppingError
from .request_queue import Work

OnRun = Callable[[int, float], None]

_GRACE = 2.0
"""Seconds for the last run to end."""


@dataclass(frozen=True)
class _Order:
    work: Work[Any]
    images: Array
    others: Mapping[str, Array]
    result: Future[Array] = field(default_factory=Future)


class Batcher:
    """A model that a single thread runs for all requests."""

    def __init__(
        self,
        function: Callable[..., Array],
        *,
        images: int = 1,
        pixels: int | None = None,
        on_run: OnRun = lambda images, seconds: None,
    ) -> None:
        """Start the thread.

        Args:
            function: (B, C, h, w), and other inputs by name -> (B, ...).
            images: How many images one run takes at most.
            pixels: How many pixels all images of a run have at most where it takes several; None
                is any number.
            on_run: Called after each run with its number of images and its seconds.
        """
        self._function, self._images, self._pixels, self._on_run = function, images, pixels, on_run
        self._orders: deque[_Order] = deque()
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._serve, name="nystra-model", daemon=True)
        self._thread.start()

    def __call__(self, work: Work[Any], images: Array, **others: Array) -> Array:
        """Run the model on images of a request, and wait for the result.

        Args:
            work: The request; once it is cancelled its images are not run.
            images: (B, C, h, w).
            **others: Other inputs by name; such a run is not shared.

        Raises:
            ServiceError: The request was cancelled, the model failed, or the service is stopping.
        """
        work.check()
        order = _Order(work, images, others)
        with self._changed:
            if self._closed:
                raise StoppingError("the service is stopping: send the request to another instance")
            self._orders.append(order)
            self._changed.notify()
        return order.result.result()

    @property
    def alive(self) -> bool:
        """Whether the thread can run the model."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the thread, once its last run ends, or soon; waiting calls are refused."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_GRACE)

    def _serve(self) -> None:
        try:
            while (first := self._next()) is not None:
                self._answer(first)
        finally:  # whatever ended the thread: no caller waits for it
            with self._changed:
                self._closed = True
                self._drop_cancelled()

    def _next(self) -> _Order | None:
        with self._changed:
            while True:
                self._drop_cancelled()
                if self._orders:
                    return self._orders.popleft()
                if self._closed:
                    return None
                self._changed.wait()

    def _answer(self, first: _Order) -> None:
        """Run the model for an order and others that fit; every error is an answer to them."""
        orders = [first]
        try:
            self._add_fitting(orders)
            self._run(orders)
        except BaseException as error:  # noqa: BLE001 - even SystemExit: others wait for this thread
            for order in orders:
                if not order.result.done():
                    order.result.set_exception(_describe_failure(error))

    def _drop_cancelled(self) -> None:
        for order in [order for order in self._orders if order.work.cancelled or self._closed]:
            self._orders.remove(order)
            try:
                order.work.check()
                raise StoppingError("the service stopped before this request was done")
            except NystraError as refusal:
                order.result.set_exception(refusal)

    def _add_fitting(self, orders: list[_Order]) -> None:
        """Move waiting orders that may share a run with the first to its list."""
        first = orders[0]
        if first.others:
            return
        count = len(first.images)
        limit = self._images
        if self._pixels is not None:
            area = math.prod(first.images.shape[2:])
            limit = min(limit, self._pixels // max(area, 1))
        with self._changed:
            for order in list(self._orders):
                fits = order.images.shape[1:] == first.images.shape[1:] and not order.others
                if fits and count + len(order.images) <= limit:
                    self._orders.remove(order)
                    orders.append(order)
                    count += len(order.images)

    def _run(self, orders: list[_Order]) -> None:
        begin = time.perf_counter()
        images = [order.images for order in orders]
        count = sum(map(len, images))
        try:
            batch = images[0] if len(orders) == 1 else np.concatenate(images)
            outputs = self._function(batch, **orders[0].others)
            if outputs.shape[:1] != (count,):
                raise NystraError(
                    f"the model returned {outputs.shape} for a batch of {count} images"
                )
        except Exception as error:  # noqa: BLE001 - it may be of one request: each runs alone
            if len(orders) > 1:
                for order in orders:
                    self._run([order])
            else:
                orders[0].result.set_exception(_describe_failure(error))
            return
        seconds = time.perf_counter() - begin
        first = 0
        for order in orders:
            order.result.set_result(outputs[first : first + len(order.images)])
            first += len(order.images)
        self._report(count, seconds)

    def _report(self, images: int, seconds: float) -> None:
        try:
            self._on_run(images, seconds)
        except Exception:  # noqa: BLE001 - printed; the answers are right
            traceback.print_exc()


def _describe_failure(error: BaseException) -> ModelFailedError:
    if isinstance(error, MemoryError):
        return ModelFailedError(
            "not enough memory to run the model: start the service with a smaller `tile`"
        )
    words = " ".join(str(error).split())[:300] or type(error).__name__
    return ModelFailedError(f"the model failed: {words}")
