"""A network against the outputs of a golden case."""

from typing import Any

import torch

from golden_cases import compare


def check(case: Any, network: torch.nn.Module) -> None:
    for run, inputs, _, expected in case.runs():
        with torch.no_grad():
            got = network(*[torch.from_numpy(value) for value in inputs.values()])
        for name, values in expected.items():
            output = next(output for output in run["outputs"] if output["name"] == name)
            unit = output.get("max_abs_f32_minus_f64") or 0.0
            tolerance = max(10 * unit, 1e-5 * output["absmax"])
            assert compare(run, name, got.numpy(), values) <= tolerance, run["name"]
