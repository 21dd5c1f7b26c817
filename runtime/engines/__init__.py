"""Engines: model files compiled by TensorRT or TensorRT-RTX, with the operator plugins.

- `toolkit`: the two programs, what is installed and what it can do on this machine;
- `child`, `worker`: everything that calls TensorRT runs in a process of its own, which may crash;
- `model`: what is read from a model file for it, and the input shapes an engine is built for;
- `build`, `cache`: finished engines, their key and their record.
"""
