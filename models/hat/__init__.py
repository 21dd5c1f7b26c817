"""HAT (Chen et al., 2023)."""
