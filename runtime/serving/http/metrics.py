"""The metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ..batcher import OnRun
from ..request_queue import RequestQueue

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_IMAGES = (1, 2, 4, 8, 16, 32)


class Metrics:
    """Figures of one service, in a registry of their own."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, names: Sequence[str]) -> None:
        self._registry = registry = CollectorRegistry()
        route, model = ("route", "model"), ("model",)
        self._requests = Counter(
            "nystra_requests",
            "Requests by route, model and status.",
            ("route", "model", "status"),
            registry=registry,
        )
        self._pixels = Counter(
            "nystra_pixels", "Pixels of the images that were processed.", model, registry=registry
        )

        def histogram(
            name: str, help: str, labels: tuple[str, ...], buckets: tuple[float, ...] = _SECONDS
        ) -> Histogram:
            return Histogram(f"nystra_{name}", help, labels, buckets=buckets, registry=registry)

        self._seconds = histogram(
            "request_seconds", "Seconds from the end of the upload to the response.", route
        )
        self._waited = histogram("queue_seconds", "Seconds in the queue.", route)
        self._run_seconds = histogram("run_seconds", "Seconds of one run of a model.", model)
        self._run_images = histogram("run_images", "Images per run.", model, _IMAGES)
        self.ran: dict[str, OnRun] = {name: self._runs_of(name) for name in names}

    def watch(self, queue: RequestQueue) -> None:
        """Add gauges that read the state of the queue on request."""
        gauges: list[tuple[str, str, Callable[[], float]]] = [
            ("nystra_queue_waiting", "Requests in the queue.", lambda: queue.waiting),
            ("nystra_requests_under_way", "Requests in progress.", lambda: queue.under_way),
            (
                "nystra_memory_held_bytes",
                "Bytes of requests in progress.",
                lambda: queue.bytes_used,
            ),
            (
                "nystra_memory_limit_bytes",
                "Largest number of bytes of requests in progress.",
                lambda: queue.memory,
            ),
        ]
        for name, help, read in gauges:
            Gauge(name, help, registry=self._registry).set_function(read)

    def count_request(self, route: str, model: str, status: int) -> None:
        """Count a request with its status, answered or refused."""
        self._requests.labels(route, model, str(status)).inc()

    def record_answer(
        self, route: str, model: str, seconds: float, waited: float, pixels: int
    ) -> None:
        """Record the figures of an answer.

        Args:
            route: Route of the request.
            model: The requested model.
            seconds: From the end of the upload to the answer.
            waited: Seconds in the queue.
            pixels: Pixels of the uploaded image.
        """
        self._seconds.labels(route, model).observe(seconds)
        self._waited.labels(route, model).observe(waited)
        self._pixels.labels(model).inc(pixels)

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self._registry)

    def _runs_of(self, name: str) -> OnRun:
        def ran(images: int, seconds: float) -> None:
            self._run_images.labels(name).observe(images)
            self._run_seconds.labels(name).observe(seconds)

        return ran
