"""From a network to an ONNX graph: one pass, one file."""
