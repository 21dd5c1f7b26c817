"""Writes nodes of nystra into an ONNX graph."""
