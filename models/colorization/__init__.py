"""Guided colorization of a gray image."""
