"""8-bit integers in a graph: static quantization of the layers with weights, measured."""
