"""Which networks of others export: the table of studies/measurements/networks.md."""
