"""Reading and writing videos for model files."""
