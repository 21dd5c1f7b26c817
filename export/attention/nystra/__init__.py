"""Mechanism ``nystra``."""
