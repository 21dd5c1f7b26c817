"""A low precision in a graph: `lowering` is the main module, `table` and `policy` are its data."""
