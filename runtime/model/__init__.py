"""The contents of a model file: its header, facts, manifest and recorded references."""
