"""The iterative pseudoinverse as ONNX nodes, for every body that needs it."""

from __future__ import annotations

from .body_builder import BodyBuilder
from .schema import Attribute


def pinv_nodes(body: BodyBuilder, a: str, m: str, same: str | None = None) -> str:
    """Return Z (..., m, m) of A (..., m, m).

    All steps that ``iterations`` may ask for are there; Where keeps those that it does ask for.

    Args:
        body: where the nodes go.
        a: A in float32.
        m: its size, an int64 scalar.
        same: bool, broadcast to (..., m, m): which landmarks share a region.
    """
    rank_free_transpose = body.op("Einsum", a, equation="...ij->...ji")
    absolute = body.op("Abs", a)
    row_sums = body.reduce("ReduceSum", absolute, -1)  # (..., m, 1)
    col_sums = body.reduce("ReduceSum", absolute, -2)  # (..., 1, m)
    everywhere = body.op(
        "Mul", body.reduce("ReduceMax", row_sums, None), body.reduce("ReduceMax", col_sums, None)
    )
    if same is None:
        rows, cols = body.reduce("ReduceMax", row_sums, -2), body.reduce("ReduceMax", col_sums, -1)
    else:
        zero = body.number(0.0)
        # R_j for each column j of `same`, then C_i for each of its rows i; `same` is symmetric
        rows = body.reduce("ReduceMax", body.op("Where", same, row_sums, zero), -2)
        rows = body.op("Einsum", rows, equation="...ij->...ji")
        cols = body.reduce("ReduceMax", body.op("Where", same, col_sums, zero), -1)
    per_matrix = body.op("Mul", rows, cols)
    maxima = body.op("Where", body.is_on("batch_init"), everywhere, per_matrix)
    z = body.op("Div", rank_free_transpose, body.op("Add", maxima, body.number(1e-15)))

    place = body.count(m)
    diagonal = body.op("Equal", place, body.reshape(place, -1, 1))
    eye = body.op("Cast", diagonal, to=1)
    eyes = [body.op("Mul", eye, body.number(factor)) for factor in (7.0, 15.0, 13.0)]
    quarter = body.number(0.25)
    for step in range(_most_iterations(body)):
        az = body.op("MatMul", a, z)
        term = body.op("Sub", eyes[0], az)
        for scaled_eye in eyes[1:]:
            term = body.op("Sub", scaled_eye, body.op("MatMul", az, term))
        following = body.op("Mul", body.op("MatMul", z, term), quarter)
        if step:  # there is always one
            wanted = body.op("Greater", body.attribute("iterations"), body.ints(step))
            following = body.op("Where", wanted, following, z)
        z = following
    return z


def _most_iterations(body: BodyBuilder) -> int:
    attributes: tuple[Attribute, ...] = body.schema.attributes
    return int(next(a.maximum for a in attributes if a.name == "iterations"))
