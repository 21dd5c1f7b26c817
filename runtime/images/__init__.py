"""Images in memory and on disk."""
