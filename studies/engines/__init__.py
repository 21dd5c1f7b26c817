"""Engines side by side on networks that restore pictures: time, memory, what they lose."""
