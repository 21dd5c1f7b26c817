"""Studies: training, tables of papers and measurements. Not part of the package ``nystra``."""
