"""Figures of arrays and images: differences, defects and quality."""
