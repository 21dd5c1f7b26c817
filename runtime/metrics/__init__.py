"""Figures of arrays and images: how far two are apart, what cannot be right, how good one is."""
