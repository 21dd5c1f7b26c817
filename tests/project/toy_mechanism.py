"""A mechanism as described in CONTRIBUTING: a folder and a row, added during a test."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nystra.export import attention
from nystra.export.attention.registry import MECHANISMS
from toy_tree import Toy


@contextmanager
def added_mechanism(folder: Path, name: str, row: str, **files: str) -> Iterator[None]:
    """Add the folder ``name`` with these files beside the mechanisms, and its row.

    Args:
        folder: An empty folder, which stands for ``export/attention``.
        name: Of the mechanism.
        row: Name of its class.
        **files: Text by name of the module.
    """
    home = folder / name
    home.mkdir()
    for module, text in (files | {"__init__": ""}).items():
        (home / f"{module}.py").write_text(text)
    attention.__path__.append(str(folder))
    importlib.invalidate_caches()
    MECHANISMS[name] = row
    try:
        yield
    finally:
        del MECHANISMS[name]
        attention.__path__.remove(str(folder))
        for module in [
            key for key in sys.modules if key.startswith(f"{attention.__name__}.{name}")
        ]:
            del sys.modules[module]
        vars(attention).pop(name, None)


PARAMETERS = """
from dataclasses import dataclass

from ....core.option import option
from ....core.option_kinds import Number
from ..mechanism import Mechanism


@dataclass(frozen=True)
class Toy(Mechanism):
    name = "toy"
    site_classes = ("Windows",)
    summary = "every token gets a share of the mean"
    keeps_bias = False

    share: float = option(Number(0.5, "how much of the mean a token gets", 0.0, 1.0))
"""

SITES = """
from dataclasses import dataclass

from .parameters import Toy


@dataclass(frozen=True)
class Windows:
    mechanism: Toy
    form: str

    def __call__(self, qkv, bias_table, geometry):
        values = qkv[..., -geometry.heads * geometry.value_dim :]
        mean = values.mean((1, 2), keepdim=True)
        return values + self.mechanism.share * (mean - values)
"""

TOY = Toy(
    "mechanism",
    "toy",
    {
        "export/attention/<name>/parameters.py": PARAMETERS,
        "export/attention/<name>/sites.py": SITES,
    },
    {
        "export/attention/registry.py": (
            (
                '    "as_trained": "AsTrained",\n',
                '    "as_trained": "AsTrained",\n    "toy": "Toy",\n',
            ),
        )
    },
)
