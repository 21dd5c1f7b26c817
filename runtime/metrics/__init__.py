"""Figures of arrays and pictures: how far two are apart, what cannot be right, how good one is."""
