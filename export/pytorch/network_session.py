"""A PyTorch network as a session: numpy in, numpy out."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class NetworkSession:
    """A network that runs as ``runtime``'s backends do: named arrays in, named arrays out."""

    def __init__(
        self,
        network: nn.Module,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        outputs: Sequence[str] = ("output",),
        *,
        compiled: bool = False,
    ) -> None:
        """Keep the network, or a copy of it in another precision or on another device.

        Args:
            network: The network.
            dtype: Type of its tensors and inputs.
            device: Its device.
            outputs: Names of its outputs.
            compiled: Run it with ``torch.compile``, compiled for each size.
        """
        self.dtype = dtype
        self.device = torch.device(device)
        same = dtype == torch.float32 and self.device.type == "cpu" and not compiled
        self.network = network if same else copy.deepcopy(network).to(self.device, dtype)
        if compiled:
            self.network.compile(dynamic=False)
        self._outputs = tuple(outputs)

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs by name for inputs in the order of the network's arguments.

        The copies to and from the device are part of the run.
        """
        arrays = self._arrays(self._tensors(feeds.values()))
        return dict(zip(self._outputs, arrays, strict=True))

    def device_seconds(self, feeds: Mapping[str, npt.NDArray[Any]]) -> float | None:
        """Run once; return the seconds between CUDA events around the network.

        Returns:
            None on the CPU.
        """
        if self.device.type != "cuda":
            return None
        with torch.inference_mode(), self._promote_numbers():
            tensors = self._tensors(feeds.values())
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            self.network(*tensors)
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def _promote_numbers(self) -> contextlib.AbstractContextManager[Any]:
        if self.dtype == torch.float64:
            return _Promoting()
        return contextlib.nullcontext()

    def _tensors(self, arrays: Iterable[npt.NDArray[Any]]) -> list[Tensor]:
        tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        return [
            tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)
            for tensor in tensors
        ]

    def _arrays(self, tensors: Sequence[Tensor]) -> list[npt.NDArray[Any]]:
        with torch.inference_mode(), self._promote_numbers():
            outputs = self.network(*tensors)
            values = outputs if isinstance(outputs, tuple) else (outputs,)
            # The copy to the host waits for the device's work.
            return [value.cpu().numpy() for value in values]

    def all(self, arrays: Iterable[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Return every output for the inputs in their order."""
        return self._arrays(self._tensors(arrays))

    def __call__(self, *arrays: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the first output for the inputs in their order."""
        return self.all(arrays)[0]


class _Promoting(TorchFunctionMode):
    """Allows products, too, of float64 and other types that a network creates while it runs.

    PyTorch promotes the operands of a sum, but refuses those of a product. Refused operations are
    repeated with every floating-point tensor in float64, like a module's own tensors.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        try:
            return func(*args, **named)
        except RuntimeError:
            wide = tuple(_as_double(value) for value in args)
            named_wide = {name: _as_double(value) for name, value in named.items()}
            values = (*args, *named.values())
            wide_values = (*wide, *named_wide.values())
            pairs = zip(values, wide_values, strict=True)
            if all(before is after for before, after in pairs):
                raise
            return func(*wide, **named_wide)


def _as_double(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.double()
    return value
