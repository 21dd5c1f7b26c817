"""Attention mechanisms, sites and plans."""
