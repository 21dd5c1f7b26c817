"""Layers that networks of several kinds have in common."""
