"""Guided colorization of a grey picture."""
