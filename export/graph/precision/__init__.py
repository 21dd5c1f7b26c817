"""A low precision in a graph: `lowering` tells the story, `table` and `policy` are its data."""
