"""Whether other programs can open a model file, by their rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.errors import NystraError, foreign_reason
from ..deploy.host_model import host_problems
from ..deploy.vapoursynth.rules import vapoursynth_problems
from ..runtime.checking.gate import FAILED, PASSED, CheckResult
from ..runtime.session import Session


def chainner_problems(session: Session) -> list[str]:
    """Return why chaiNNer cannot run a file; empty if it can.

    In addition to the rules of every host, values have to be in 0..1, and onnx has to infer all
    shapes in strict mode, with type checks and data propagation.

    Args:
        session: The file.
    """
    import onnx

    problems = host_problems(session)
    for kind, port in (("takes", session.facts.image), ("gives", session.facts.output_image)):
        if port is not None and port.range not in (None, (0.0, 1.0)):
            low, high = port.range
            problems.append(f"it {kind} values in {low:g}..{high:g}, expected 0..1")
    try:
        onnx.shape_inference.infer_shapes(
            onnx.load(session.path), check_type=True, strict_mode=True, data_prop=True
        )
    except Exception as error:  # noqa: BLE001 - onnx's errors have no common base
        reason = foreign_reason(error)
        problems.append(f"the strict shape inference of onnx stops: {reason}")
    return problems


HOSTS: dict[str, Callable[[Session], list[str]]] = {
    "chainner": chainner_problems,
    "vapoursynth": vapoursynth_problems,
}
"""Program -> reasons why it cannot run a file."""


def require_hosts(names: Sequence[str]) -> None:
    """Refuse names that are not of `HOSTS`.

    Raises:
        NystraError: One is not.
    """
    for name in names:
        if name not in HOSTS:
            raise NystraError(f"unknown host {name!r}: expected one of {', '.join(HOSTS)}")


def check_hosts(session: Session, names: Sequence[str]) -> list[CheckResult]:
    """Return an item of ``nystra check`` for each program.

    Args:
        session: The file.
        names: Names in `HOSTS`.
    """
    results = []
    for name in dict.fromkeys(names):
        problems = HOSTS[name](session)
        text = "; ".join(problems) or "it can load the file, by the rules that nystra knows"
        state = FAILED if problems else PASSED
        results.append(CheckResult(f"host {name}", state, None, None, None, f"{name}: {text}"))
    return results
