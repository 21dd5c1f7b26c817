"""Mechanism ``full``."""
