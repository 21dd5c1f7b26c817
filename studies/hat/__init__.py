"""HAT: clusters in its overlapping windows, and tiles."""
