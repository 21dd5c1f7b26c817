"""Exports of third-party networks: the table of studies/measurements/networks.md."""
