"""Finds the attention of an ONNX graph: what it computes, and where its tokens are."""
