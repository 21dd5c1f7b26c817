"""The ONNX domain of the operators."""

DOMAIN = "nystra"
