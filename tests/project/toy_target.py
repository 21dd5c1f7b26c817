"""A serving target as described in CONTRIBUTING: the model file and a JSON file."""

from toy_tree import Toy

OPTIONS = '''"""How the toy server runs a model."""

from dataclasses import dataclass

from ...core.option import Options, option
from ...core.option_kinds import Number
from ...runtime.options import OVERWRITE, TILE


@dataclass(frozen=True)
class ToyOptions(Options):
    """How the toy server runs a model."""

    replicas: int = option(Number(2, "processes that answer", 1, 8))
    tile: int = option(TILE)
    overwrite: bool = option(OVERWRITE)
'''

FOLDER = '''"""The folder that the toy server takes."""

import json
import shutil
from pathlib import Path

from ...core.files.writing import atomic_folder
from .options import ToyOptions


def write_folder(model: Path, folder: Path, options: ToyOptions) -> Path:
    """Write the model file and how it is run."""
    target = Path(folder, model.stem)
    with atomic_folder(target, overwrite=options.overwrite) as made:
        shutil.copyfile(model, made / model.name)
        (made / "serve.json").write_text(json.dumps(options.values()))
    return target
'''

_LAST = '        _part("triton.repository", "write_repository"),\n    ),\n'
_ROW = """\
    Target(
        "toy",
        "the toy server: a folder",
        _part("toy.options", "ToyOptions"),
        _part("toy.folder", "write_folder"),
    ),
"""

TOY = Toy(
    "serving target",
    "toy",
    {"deploy/<name>/options.py": OPTIONS, "deploy/<name>/folder.py": FOLDER},
    {"deploy/registry.py": ((_LAST, _LAST + _ROW),)},
)
