"""Model files of one size for engines that read standard ONNX alone."""
