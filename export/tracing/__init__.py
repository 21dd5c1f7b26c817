"""Traces a network into an ONNX graph, before any other step of an export."""
