"""Building: from a planned network to an ONNX graph, one pass a file."""
