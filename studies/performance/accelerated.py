"""`nystra.accelerate` beside PyTorch: eager and inductor; processor time in turns.

python -m studies.performance.accelerated swinir_m 128 inductor ort-cpu openvino
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch._inductor.config as inductor
from torch import Tensor, nn

from nystra.export import accelerate
from nystra.runtime.timing.turns import measure_shortest
from studies.engines.networks import NETWORKS

WAYS = ("inductor", "ort-cpu", "openvino")


def functions(network: nn.Module, image: Tensor, wanted: Sequence[str]) -> dict[str, Any]:
    """Return what is timed, by name."""
    made: dict[str, Any] = {"eager": network}
    if "inductor" in wanted:
        inductor.freezing = True
        made["inductor"] = torch.compile(network, mode="max-autotune", dynamic=False)
    for backend in {"ort-cpu", "openvino"} & {*wanted}:
        made[backend] = accelerate(network, backend=backend, example=image)
    return made


def measured(name: str, side: int, wanted: Sequence[str]) -> dict[str, Any]:
    """Return the shortest processor time of a call of each way, and its difference from eager."""
    network = NETWORKS[name].module()
    image = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        made = functions(network, image, wanted)
        expected = network(image)
        apart = {
            way: float((call(image) - expected).abs().max() / expected.abs().max())
            for way, call in made.items()
        }
        calls: dict[str, Callable[[], object]] = {
            way: partial(call, image) for way, call in made.items()
        }
        seconds = measure_shortest(calls, rounds=3, clock=time.process_time)
    gain = {way: seconds["eager"] / own for way, own in seconds.items()}
    return {"network": name, "side": side, "seconds": seconds, "gain": gain, "difference": apart}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=sorted(NETWORKS))
    parser.add_argument("side", type=int)
    parser.add_argument("ways", nargs="+", choices=WAYS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(measured(given.network, given.side, given.ways)))


if __name__ == "__main__":
    main()
