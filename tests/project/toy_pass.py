"""A pass over the graph as described in CONTRIBUTING: it signs the graph."""

from toy_tree import Toy

SIGNING = '''"""Signs graphs."""

import onnx

from ..execute.editing import PassResult


def sign_graph(model: onnx.ModelProto) -> PassResult:
    """Sign a graph, in place."""
    model.graph.doc_string = "signed"
    return PassResult(model, ("a toy signed it",))
'''

_IMPORT = "from .metadata import "
_PASSES = "    passes: list[Callable[[onnx.ModelProto], PassResult]] = []\n"

TOY = Toy(
    "pass over the graph",
    "toy_pass",
    {"export/graph/<name>.py": SIGNING},
    {
        "export/graph/stage.py": (
            (_IMPORT, "from .toy_pass import sign_graph\n" + _IMPORT),
            (_PASSES, _PASSES + "    passes.append(sign_graph)\n"),
        )
    },
)
