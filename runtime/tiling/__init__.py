"""Running a network over an image in tiles, as the memory allows."""
