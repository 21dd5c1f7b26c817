"""Runs an ONNX graph, or parts of it; sites are computed in plain PyTorch."""
