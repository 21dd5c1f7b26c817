"""Mechanism ``psal``."""
