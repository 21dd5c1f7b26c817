"""What makes a graph of ONNX of a network, before anything else is done to it."""
