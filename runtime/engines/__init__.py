"""Engines: model files compiled by TensorRT or TensorRT-RTX, with the operator plugins.

- `builder`, `worker`: the two programs, and the process that calls them, which may crash;
- `build`: an engine, from the cache of compiled models or new.
"""
