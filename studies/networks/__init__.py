"""Which networks of others export: the table of docs/networks.md."""
