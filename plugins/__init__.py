"""The operators: schemas, references, torch ops, ONNX bodies and native libraries."""
