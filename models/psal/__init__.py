"""The PSAL layer: attention to the nearest patches (Cherel et al., 2023)."""
