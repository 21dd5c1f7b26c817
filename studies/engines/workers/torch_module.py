"""PyTorch: the network as it is, or compiled by inductor or zentorch."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch

from studies.engines.networks import NETWORKS
from studies.engines.workers.protocol import Request, Run, serve


def open_engine(request: Request) -> Run:
    """Build the network; compilation takes place in the first run."""
    torch.set_num_threads(request["threads"])
    network: Any = NETWORKS[request["network"]].module()
    compiler = request.get("compiler")
    if compiler is not None:
        network = _compiled(network, compiler)
    low = request["precision"] == "bf16"

    def run(image: np.ndarray) -> np.ndarray:
        cast = torch.autocast("cpu", torch.bfloat16) if low else contextlib.nullcontext()
        with torch.no_grad(), cast:
            output: np.ndarray = network(torch.from_numpy(image)).float().numpy()
        return output

    return run


def _compiled(network: Any, compiler: str) -> Any:
    import torch._inductor.config as inductor

    inductor.freezing = True
    if compiler == "inductor":
        return torch.compile(network, mode="max-autotune")
    __import__(compiler)
    return torch.compile(network, backend=compiler)


if __name__ == "__main__":
    serve("torch", open_engine)
