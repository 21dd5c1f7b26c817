"""What model files do on real things: one task, one folder, and a table of them."""
