"""A folder that Triton Inference Server serves a model file from."""
