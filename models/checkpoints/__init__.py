"""Checkpoint files: reading them, checking their tensors, and building networks from them."""
