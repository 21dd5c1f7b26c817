"""ONNX files of other programs: read as a network whose attention is replaced."""
