"""Whether a model file is right (validation), and is still what was accepted (the CI gate)."""
