"""SwinIR (Liang et al., 2021)."""
