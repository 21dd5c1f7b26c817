"""PyTorch's time on a GPU: events around the network alone. A stand-in of a GPU keeps the order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nystra.export.pytorch.network_session import NetworkSession

LOG: list[str] = []


class HostAsGpu(TorchFunctionMode):
    """Tensors that are sent to CUDA stay on the host; each copy there is logged."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Send to the CPU what is for CUDA."""
        if func is Tensor.to and any(str(one).startswith("cuda") for one in args):
            LOG.append("copy")
            args = tuple("cpu" if str(one).startswith("cuda") else one for one in args)
        elif func is Tensor.cpu:
            LOG.append("copy back")
        return func(*args, **(kwargs or {}))


class Event:
    """Of a stream that is 40 ms further with every entry of the log."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing, "CUDA refuses to time other events"
        self.place: int | None = None
        self.reached = False

    def record(self) -> None:
        """Mark the place in the stream."""
        LOG.append("event")
        self.place = len(LOG)

    def synchronize(self) -> None:
        """Wait for it and what is before it."""
        assert self.place is not None
        LOG.append("wait")
        self.reached = True

    def elapsed_time(self, end: Event) -> float:
        """Return milliseconds; CUDA refuses events that the device has not reached."""
        assert end.reached
        assert self.place is not None
        assert end.place is not None
        return 40.0 * (end.place - self.place)


class Logging(nn.Module):
    """A network with a parameter, of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return scale x - y."""
        LOG.append("network")
        return self.scale * x - y


FEEDS = {"x": np.full((2, 3), 4.0, np.float32), "y": np.ones(3, np.float32)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_time_on_a_gpu_is_that_of_the_network(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    with HostAsGpu():
        session = NetworkSession(Logging(), dtype, "cuda")
        LOG.clear()
        assert session.device_seconds(FEEDS) == pytest.approx(0.08)
        assert LOG == ["copy", "copy", "event", "network", "event", "wait"]
        LOG.clear()
        out = session.run(FEEDS)["output"]
    assert LOG == ["copy", "copy", "network", "copy back"]
    assert (out == 7.0).all()
    assert out.dtype == torch.empty((), dtype=dtype).numpy().dtype


def test_no_time_on_a_gpu_where_the_network_is_on_the_cpu() -> None:
    session = NetworkSession(Logging())
    LOG.clear()
    assert session.device_seconds(FEEDS) is None
    assert LOG == [], "nothing runs for it"
