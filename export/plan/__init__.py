"""Planning: what is computed at each site, and where the file goes."""
