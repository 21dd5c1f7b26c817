"""Mechanism ``cluster``."""
