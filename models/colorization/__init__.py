"""Guided colorization of a grey image."""
