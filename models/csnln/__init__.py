"""Cross-scale non-local attention (Mei et al., 2020)."""
