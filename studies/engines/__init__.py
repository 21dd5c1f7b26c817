"""Engines side by side on networks that restore images: time, memory, what they lose."""
