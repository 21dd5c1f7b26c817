"""The operator ``NystraWindowOverlap``."""
