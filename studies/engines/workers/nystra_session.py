"""nystra's own session on a file that it exported."""

from __future__ import annotations

import numpy as np

from studies.engines.workers.protocol import Request, Run, serve


def open_engine(request: Request) -> Run:
    """Open the file in the backend, computing in bf16 if requested."""
    from nystra.runtime import Session

    bf16 = "bf16" if request["precision"] == "bf16" else None
    session = Session(request["path"], request["backend"], request["threads"], precision=bf16)
    given, result = session.inputs[0].name, session.outputs[0].name

    def run(image: np.ndarray) -> np.ndarray:
        return session.run({given: image})[result]

    return run


if __name__ == "__main__":
    serve("nystra", open_engine)
