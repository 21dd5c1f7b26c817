"""Schemas: their refusals and messages, and the attributes of a node."""

import subprocess
import sys

import numpy as np
import pytest

from nystra.core.errors import NystraError
from nystra.plugins.operators import OPERATORS, find_schema
from nystra.plugins.operators.schema import node_attributes
from nystra.plugins.operators.window_schema import MAX_LANDMARKS, cell_bounds, cuts_a_cell

WINDOW = {
    "heads": 2,
    "head_dim": 8,
    "value_dim": 8,
    "window_h": 8,
    "window_w": 8,
    "scale": 0.5,
}


def test_node_attributes_are_complete() -> None:
    attributes = node_attributes("NystraWindowNystrom", **WINDOW, shift_h=np.int64(4))
    assert attributes == {
        **WINDOW,
        "shift_h": 4,
        "shift_w": 0,
        "mask": 0,
        "landmark_rows": 4,
        "landmark_cols": 4,
        "iterations": 6,
        "batch_init": 0,
        "threshold": 5.0,
        "guard": 0.02,
        "revision": 1,
        "plugin_version": "1",
        "plugin_namespace": "",
    }
    assert type(attributes["shift_h"]) is int
    assert find_schema("NystraWindowNystrom").validate(attributes).keys() == (
        attributes.keys() - {"plugin_version", "plugin_namespace"}
    )


@pytest.mark.parametrize(
    ("name", "attributes", "message"),
    [
        ("NystraPinv", {"iterations": 2.5}, "iterations is 2.5; expected an integer"),
        ("NystraPinv", {"steps": 3}, "unknown attribute steps; expected iterations, batch_init"),
        ("NystraPinv", {"revision": 2}, "has revision 2, this nystra supports revision 1"),
        ("NystraPatchMatch", {"patch_size": 4}, "patch_size is 4; expected an odd number"),
        ("NystraWindowSoftmax", {"heads": 2}, "attribute .* is missing"),
        ("NystraWindowSoftmax", {**WINDOW, "scale": float("nan")}, "expected a finite number"),
        ("NystraWindowSoftmax", {**WINDOW, "shift_w": 8}, "expected less than window_w, 8"),
        ("NystraWindowSoftmax", {**WINDOW, "guard": 0.1}, "unknown attribute guard"),
        (
            "NystraWindowNystrom",
            {**WINDOW, "landmark_rows": MAX_LANDMARKS},
            f"{MAX_LANDMARKS} x 4 landmarks; expected at most {MAX_LANDMARKS}",
        ),
        (
            "NystraWindowNystrom",
            {**WINDOW, "mask": 1, "shift_h": 3},
            "border at 5 of 8 rows cuts a landmark's cell",
        ),
        (
            "NystraWindowNystromformer",
            {**WINDOW, "mask": 1, "shift_w": 4, "landmark_cols": 1},
            "border at 4 of 8 columns cuts a landmark's cell",
        ),
    ],
)
def test_refusals(name: str, attributes: dict[str, float], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        find_schema(name).validate(attributes)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_range_is_checked(name: str) -> None:
    schema = find_schema(name)
    least = {a.name: a.minimum for a in schema.attributes if a.default is None}
    for attribute in schema.attributes[:-1]:
        for value in (attribute.minimum - 1, attribute.maximum + 1):
            message = f"{attribute.name} is {value}; expected {attribute.minimum} to "
            with pytest.raises(NystraError, match=f"{message}{attribute.maximum}$"):
                schema.validate({**least, attribute.name: value})


def test_unknown_operator() -> None:
    with pytest.raises(NystraError, match="unknown operator 'NystraFoo'"):
        find_schema("NystraFoo")


def test_cells_are_those_of_adaptive_pooling() -> None:
    torch = pytest.importorskip("torch")
    for n in range(1, 20):
        for parts in range(1, 12):
            values = torch.arange(float(n)) ** 2
            pooled = torch.nn.functional.adaptive_avg_pool1d(values[None], parts)[0]
            means = [values[start:end].mean() for start, end in cell_bounds(n, parts)]
            torch.testing.assert_close(torch.stack(means), pooled)


def test_cuts_a_cell() -> None:
    assert not cuts_a_cell(8, 4, 4)
    assert not cuts_a_cell(8, 0, 1)
    assert not cuts_a_cell(8, 2, 4)
    assert cuts_a_cell(8, 4, 1)
    assert cuts_a_cell(8, 3, 4)
    assert cuts_a_cell(7, 3, 4), "overlapping cells: [3, 6) holds the border 4"
    assert not cuts_a_cell(7, 3, 7)


def test_a_cut_cell_has_the_border_strictly_inside() -> None:
    """The formula against the cells themselves."""
    for window in range(1, 18):
        for shift in range(window):
            border = window - shift
            for parts in range(1, 20):
                inside = any(start < border < end for start, end in cell_bounds(window, parts))
                assert cuts_a_cell(window, shift, parts) == (shift > 0 and inside)


def test_schemas_import_neither_torch_nor_onnx() -> None:
    code = (
        "import sys\n"
        "from nystra.plugins.operators import OPERATORS, find_schema\n"
        "for name in OPERATORS:\n"
        "    find_schema(name)\n"
        "sys.exit(' '.join({'torch', 'onnx', 'onnxruntime'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
