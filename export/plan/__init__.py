"""Planning: the mechanism of each site, and the path of the file."""
