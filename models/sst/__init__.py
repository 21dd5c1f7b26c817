"""SST (Lee et al., 2026)."""
