"""Inpainting by contextual attention (Yu et al., 2018)."""
