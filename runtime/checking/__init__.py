"""Whether a model file is right, how good it is, and the gate for CI."""
