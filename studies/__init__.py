"""Studies: training, the papers' tables and measurements. Not part of the package ``nystra``."""
