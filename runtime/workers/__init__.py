"""Child processes that answer requests."""
