"""ESC (Lee et al., 2025) and its variants."""
