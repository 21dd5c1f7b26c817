"""Uformer (Wang et al., 2022)."""
