"""The accepted outputs in a baseline: how much a file's outputs have changed since.

References travel with a model file: a worse file that was exported anew agrees with its own. A
baseline therefore holds the outputs of the accepted file for one small input.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
from typing import Any

from ...core.errors import NystraError
from ...core.json_text import quote
from ..metrics.measures import worst_figures
from ..model.references import ReferenceCase, References, read_content, references_content
from ..session import Session
from .validation import SizeReport, compare

MAXIMUM_BYTES = 1 << 20
"""Outputs that need more in the baseline, as text, are not recorded."""


def record_outputs(session: Session, references: References) -> ReferenceCase | None:
    """Return the smallest recorded input with the outputs that a file has for it now.

    None if they are too large for a baseline.
    """
    smallest = min(references.cases, key=_count_elements)
    outputs = session.run(smallest.feeds())
    case = ReferenceCase(smallest.inputs, {name: outputs[name] for name in smallest.outputs})
    return case if len(encode_case(case)) <= MAXIMUM_BYTES else None


def compare_outputs(
    session: Session, accepted: ReferenceCase, references: References
) -> SizeReport | str:
    """Compare the outputs of a file with the accepted ones.

    Args:
        session: The file.
        accepted: The accepted outputs.
        references: Its references, which say what the outputs are.

    Returns:
        Its differences; or why there are none: it has other inputs or outputs.
    """
    try:
        unlimited = [(math.inf, None)]
        report = compare(session, References((accepted,), references.meta), unlimited, {})
    except NystraError as error:
        return str(error)
    return report.sizes[0]


def difference_text(report: SizeReport) -> str:
    """Return the largest difference and the other figures in words."""
    figures = worst_figures([report.figures])
    units = {"psnr": " dB"}
    texts = [f"{name} {value:.4g}{units.get(name, '')}" for name, value in figures.items()]
    return ", ".join([f"largest difference {report.max_abs:.3g}", *texts])


def encode_case(case: ReferenceCase) -> str:
    """Return accepted outputs as a baseline holds them: an ``.npz`` of references in base64."""
    return base64.b64encode(references_content([case], {})).decode("ascii")


def decode_case(text: Any, where: str) -> ReferenceCase:
    """Return the accepted outputs of a baseline.

    Args:
        text: What the baseline holds.
        where: Names the place for messages.

    Raises:
        NystraError: It is no such text, or too large.
    """
    if not isinstance(text, str) or len(text) > MAXIMUM_BYTES:
        raise NystraError(
            f"{where} is {quote(text)}, expected a text of at most {MAXIMUM_BYTES} characters"
        )
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise NystraError(f"{where} is no base64 text: {error}") from error
    cases = read_content(io.BytesIO(content), where).cases
    if len(cases) != 1:
        raise NystraError(f"{where} holds {len(cases)} cases, expected 1")
    return cases[0]


def _count_elements(case: ReferenceCase) -> int:
    return sum(array.size for array in (*case.inputs.values(), *case.outputs.values()))
