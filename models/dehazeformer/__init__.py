"""DehazeFormer (Song et al., 2023)."""
