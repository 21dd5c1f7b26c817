"""New nodes in front of a node of a traced graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir


class AddedNodes(ir.tape.Tape):
    """Records nodes, to be inserted in front of another one."""

    def integers(self, *numbers: int) -> ir.Value:
        """Return a constant vector of int64."""
        tensor = ir.tensor(np.array(numbers, np.int64))
        return self.op("Constant", [], {"value": tensor})

    def insert_before(self, node: ir.Node) -> None:
        """Insert the nodes, as parts of the same module."""
        for added in self.nodes:
            added.metadata_props.update(node.metadata_props)
        if node.graph is not None:
            node.graph.insert_before(node, self.nodes)
