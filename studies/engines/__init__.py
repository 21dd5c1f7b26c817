"""Engines side by side on networks that restore images: time, memory and accuracy."""
