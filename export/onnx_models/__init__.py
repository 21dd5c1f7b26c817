"""ONNX files of other programs: read as a network, their attention cut out and replaced."""
