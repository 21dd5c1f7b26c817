"""Mechanism ``performer``."""
