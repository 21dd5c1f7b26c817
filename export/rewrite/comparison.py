"""Compares the sites of a replacement with the nodes that they replace."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from torch import Tensor

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.ports.port import join_sides
from ...runtime.ort_values import OrtValue, copy_from_ort, copy_to_ort
from ..differences import largest, nudge, relative_difference
from ..execute.parts import PartRunner, Values, find_reads, is_stored
from ..execute.sites import Compute, SitedRunner, compute_values
from ..execute.sized import Sized
from .replacement import Replacement, Shapes, compute_site
from .site_modules import AnyFound, ignore_scores

ALLOWED = {1: 1e-5, 10: 1e-2, 16: 6e-2, 11: 1e-5}
"""Largest allowed difference of a site's result, relative to its largest value, by the type."""
_FACTORS = 0.0, 5.0, 100.0
"""What noise is multiplied by to compare a site where scores are zero, or saturate its softmax:
scores are products of two inputs, and so about the squares of these."""
_ROUNDED_FINELY = (1, 11)
"""Types that are compared with large scores too; half precision rounds these to whole numbers."""
_MEAN_BY_ROUNDING = 3.0
_TELLING = 10.0
"""Attention that ignores its scores must differ by at least this many times more than the site."""


def compute_fingerprint(item: Replacement, sizes: Sequence[Sized]) -> bytes:
    """Return what a replacement's check depends on, as a digest.

    These are the nodes on both sides with their attributes, how they are connected, shapes, sites,
    and all constants except the elements of floating-point tensors.
    """
    parameters = [tensor for site in item.sites.values() for tensor in site.parameters()]
    shapes = [tensor.shape for tensor in parameters]
    described = repr((item.form, item.type, shapes))
    digest = hashlib.sha256(described.encode())
    numbers: dict[ir.Value, int] = {}
    for value in item.inputs:
        numbers[value] = len(numbers)
        if str(value.name) in item.fixed:
            for sized in sizes:
                digest.update(_describe_at(sized, value))
    for node in (*item.own, None, *item.nodes):
        if node is None:  # the new nodes begin
            digest.update(b"|")
            continue
        digest.update(f"{node.domain}:{node.op_type}".encode())
        for name, attribute in sorted(node.attributes.items()):
            digest.update(
                name.encode() + ir.serde.serialize_attribute(attribute).SerializeToString()
            )
        for read in [*node.inputs, None, *find_reads(node)]:
            constant = read.const_value if read is not None and is_stored(read) else None
            if constant is not None and read not in numbers:
                digest.update(_describe(constant.numpy()))
            else:
                number = None if read is None else numbers.get(read)
                digest.update(repr(number).encode())
        first = len(numbers)
        for at, value in enumerate(node.outputs):
            numbers[value] = first + at
    digest.update(repr(numbers[item.output]).encode())
    return digest.digest()


def _describe_at(sized: Sized, value: ir.Value) -> bytes:
    """Return what `_describe` returns of a constant at a size; it may be too large to compute."""
    shape = sized.shapes[str(value.name)]
    dtype = ir.DataType(sized.type_of(value))
    if (
        dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
        and math.prod(shape) > 1
    ):
        return repr((dtype.numpy().str, shape)).encode()
    return _describe(copy_from_ort(sized.ort_value(value)))


def _describe(array: Array) -> bytes:
    """Return the type and shape of a constant, and its elements unless they are weights."""
    by_elements = array.dtype.kind != "f" or array.size == 1
    header = repr((array.dtype.str, array.shape)).encode()
    return header + (array.tobytes() if by_elements else b"")


def find_mismatch(
    replacement: Replacement,
    runner: PartRunner,
    sizes: Sequence[Sized],
    *,
    alone: bool = True,
) -> str:
    """Return why a replacement differs from the nodes that it replaces, or "" if it does not.

    Both are computed from noise, at each size.

    Args:
        replacement: The replacement.
        runner: Runs parts of the graph.
        sizes: The graph at each size.
        alone: Whether sites that ignore their scores are computed too: they have to differ. Not
            needed if that was done for another replacement of the same form.
    """
    errors = []
    telling = []
    name = str(replacement.output.name)
    for sized in sizes:
        values = draw_inputs(replacement, sized)
        run = SitedRunner(runner, replacement.nodes, [name], optimized=False)
        try:
            expected = _compute_own(replacement, runner, values)
            compute = _exactly(replacement.sites, replacement.site_shapes)
            exact = _floats(run.run(values, compute)[name])
        except (RuntimeError, NystraError):  # the site was written for other sizes
            return "a site in its place cannot be computed at another image size"
        if exact.shape != expected.shape:
            one = join_sides(expected.shape)
            other = join_sides(exact.shape)
            return (
                f"its result is {one} at another size or number of images, a site there gives "
                f"{other}"
            )
        errors.append(relative_difference([exact], [expected]))
        if alone:
            with _ignore_scores(replacement.sites):
                ignoring = run.run(values, _exactly(replacement.sites))[name]
            telling.append(relative_difference([_floats(ignoring)], [expected]))
        del values
        sized.release()
    worst = largest(errors)
    allowed = ALLOWED.get(replacement.type, 1e-5)
    if errors[0] <= allowed < worst:
        return (
            "it computes something else at another size or number of images: a site in its place "
            f"differs by {worst:.0e} of its result there"
        )
    if not worst <= allowed:
        return f"a site in its place differs by {worst:.0e} of its result"
    if alone and not np.min(telling) > _TELLING * worst:
        return "its result does not differ from attention that ignores its scores"
    return _find_saturated_fault(replacement, runner, sizes[0])


def _compute_own(replacement: Replacement, runner: PartRunner, values: Values) -> Array:
    """Return what the replaced nodes compute."""
    name = str(replacement.output.name)
    return _floats(compute_values(replacement.own, [name], runner, values)[name])


def _find_saturated_fault(replacement: Replacement, runner: PartRunner, sized: Sized) -> str:
    """Return why a replacement differs where scores are 0, or some large beside others, or "".

    Rounding changes such weights by more than those of noise: the result of the nodes that are
    replaced, for inputs with other last digits, tells by how much on average.
    """
    name = str(replacement.output.name)
    allowed = ALLOWED.get(replacement.type, 1e-5)
    run = SitedRunner(runner, replacement.nodes, [name], optimized=False)
    for factor in _FACTORS if replacement.type in _ROUNDED_FINELY else _FACTORS[:1]:
        values = draw_inputs(replacement, sized, factor)
        expected = _compute_own(replacement, runner, values)
        finite = np.isfinite(expected)
        compute = _exactly(replacement.sites)
        exact = _floats(run.run(values, compute)[name])
        if not finite.any():
            continue
        if relative_difference([exact[finite]], [expected[finite]]) <= allowed:
            continue
        values = draw_inputs(replacement, sized, factor, nudged=True)
        other = _compute_own(replacement, runner, values)
        error = np.abs(exact - expected)[finite].mean()
        rounding = np.abs(other - expected)[finite].mean()
        if not error <= max(
            _MEAN_BY_ROUNDING * rounding, allowed * np.abs(expected[finite]).mean()
        ):
            return (
                f"a site in its place differs by {error:.0e} on average where its inputs are "
                f"{factor:g} times as large"
            )
        sized.release()
    return ""


def draw_inputs(
    replacement: Replacement,
    sized: Sized,
    factor: float = 1.0,
    *,
    nudged: bool = False,
) -> Values:
    """Return inputs of a replacement at a size: noise, or 0 and 1, for what depends on pixels.

    Args:
        replacement: The replacement.
        sized: The graph at the size.
        factor: What noise is multiplied by.
        nudged: Whether noise has other last digits.
    """
    random = np.random.default_rng(0)
    values: Values = {}
    arrays: dict[str, Array] = {}
    for value in replacement.inputs:
        name = str(value.name)
        if name not in sized.data:
            values[name] = sized.ort_value(value)
            continue
        dtype = ir.DataType(sized.types[name])
        array: Array = random.standard_normal(sized.shapes[name], np.float32)
        if not dtype.is_floating_point():
            array = _zeros_and_ones(array)
        elif factor != 1.0:
            array *= factor
        arrays[name] = array.astype(dtype.numpy())
    if nudged:
        nudged_arrays = next(nudge([*arrays.values()]))
        arrays = dict(zip(arrays, nudged_arrays, strict=True))
    values |= {name: copy_to_ort(array) for name, array in arrays.items()}
    return values


def _zeros_and_ones(noise: Array) -> Array:
    """Return 0 where noise is negative and else 1; both are in each row, as in masks of tokens."""
    bits: Array = np.where(noise < 0, 0.0, 1.0)
    if bits.ndim and bits.shape[-1] > 1:
        bits[..., 0], bits[..., 1] = 0.0, 1.0
    return bits


def _floats(value: OrtValue) -> Array:
    array: Array = copy_from_ort(value).astype(np.float64)
    return array


def _exactly(
    sites: Mapping[str, AnyFound],
    shapes: dict[str, list[Shapes]] | None = None,
) -> Compute:
    """Return what computes sites; ``shapes`` gets those of their inputs."""

    def compute(path: str, inputs: Sequence[Tensor | None]) -> Tensor:
        if shapes is not None:
            own = tuple(None if value is None else tuple(value.shape) for value in inputs)
            shapes.setdefault(path, []).append(own)
        return compute_site(sites[path], inputs)

    return compute


@contextlib.contextmanager
def _ignore_scores(sites: Mapping[str, AnyFound]) -> Iterator[None]:
    before = {path: site.implementation for path, site in sites.items()}
    for site in sites.values():
        ignore_scores(site)
    try:
        yield
    finally:
        for path, site in sites.items():
            site.implementation = before[path]
