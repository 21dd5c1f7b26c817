"""ExecuTorch with XNNPACK, on a program made of the module for one size."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from studies.engines.workers.protocol import Request, Run, serve


def convert(request: Request) -> None:
    """Write the program of the network."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from studies.engines.networks import NETWORKS

    image = torch.from_numpy(np.load(request["image"]))
    with torch.no_grad():
        exported = torch.export.export(NETWORKS[request["network"]].module(), (image,))
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    Path(request["target"]).write_bytes(lowered.to_executorch().buffer)


def open_engine(request: Request) -> Run:
    """Load the program."""
    import torch
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    portable_lib._unsafe_reset_threadpool(request["threads"])
    method = Runtime.get().load_program(request["path"]).load_method("forward")
    if method is None:
        raise RuntimeError("the program has no method forward")

    def run(image: np.ndarray) -> np.ndarray:
        output: np.ndarray = method.execute([torch.from_numpy(image)])[0].numpy()
        return output

    return run


if __name__ == "__main__":
    serve("executorch", open_engine, convert)
