"""8-bit integers in a graph: static quantisation of the layers with weights, measured."""
