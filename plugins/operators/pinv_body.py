"""The iterative pseudoinverse as ONNX nodes, for every body that needs it."""

from __future__ import annotations

from .body_builder import BodyBuilder


def pinv_nodes(body: BodyBuilder, a: str, rank: int, m: str, same: str | None = None) -> str:
    """Return Z (..., m, m) of A (..., m, m).

    The body has as many steps as ``iterations`` allows, and Where selects those of its value; a
    body of one node alone has these only.

    Args:
        body: Where the nodes go.
        a: A in float32.
        rank: Its number of dimensions.
        m: Its size, an int64 scalar.
        same: bool, broadcast to (..., m, m): which landmarks share a region.
    """
    transposed = body.swap(a, rank)
    maxima = body.op("Mul", *(_maximum(body, t, same) for t in (transposed, a)))
    z = body.op("Div", transposed, body.op("Add", maxima, body.number(1e-15)))

    place = body.count(m)
    diagonal = body.op("Equal", place, body.reshape(place, -1, 1))
    eye = body.float32(diagonal)
    eyes = [body.op("Mul", eye, body.number(factor)) for factor in (7.0, 15.0, 13.0)]
    maximum = next(x.maximum for x in body.schema.attributes if x.name == "iterations")
    steps = int(maximum if body.values is None else body.values["iterations"])
    for step in range(steps):
        az = body.op("MatMul", a, z)
        term = body.op("Sub", eyes[0], az)
        for scaled_eye in eyes[1:]:
            term = body.op("Sub", scaled_eye, body.op("MatMul", az, term))
        following = body.op("MatMul", body.op("Mul", z, body.number(0.25)), term)
        if step and body.values is None:  # one is always done
            continues = body.op("Greater", body.attribute("iterations"), body.ints(step))
            following = body.op("Where", continues, following, z)
        z = following
    return z


def _maximum(body: BodyBuilder, matrix: str, same: str | None) -> str:
    """Return the largest column sum of abs matrix: of all, of each, or of each row's region."""
    sums = body.reduce("ReduceSum", body.op("Abs", matrix), -2)  # (..., 1, m)
    candidates = sums if same is None else body.op("Where", same, sums, body.number(0.0))
    return body.op(
        "Where",
        body.is_on("batch_init"),
        body.reduce("ReduceMax", sums, None),
        body.reduce("ReduceMax", candidates, -1),
    )
