"""Running a network over an image in tiles that fit into the memory."""
