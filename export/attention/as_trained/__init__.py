"""Mechanism ``as_trained``."""
