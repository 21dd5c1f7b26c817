"""Pictures in memory and on disk."""
