"""Runs an ONNX graph, or parts of it, and computes planned attention in plain PyTorch."""
