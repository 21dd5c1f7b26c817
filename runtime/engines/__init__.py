"""Engines: model files compiled by TensorRT or TensorRT-RTX, with the operator plugins.

- `builder`, `worker`: the two programs, and the process that calls them, which may crash;
- `model`: the files that an engine is built from, and the input shapes that it is built for;
- `build`, `cache`: finished engines, their key and their record.
"""
