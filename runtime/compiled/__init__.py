"""Models that are compiled for a machine, by TensorRT, TensorRT-RTX or OpenVINO.

- `model`: the files that one is built from, and the input shapes that it is built for;
- `cache`: finished ones, their key and their record.
"""
