"""From a network to an ONNX graph: one pass, one file.

A pass takes a model and changes it in place; what it has to tell of it, it returns as a record of
its own.
"""
