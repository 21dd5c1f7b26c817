"""Mechanism ``nystromformer``."""
