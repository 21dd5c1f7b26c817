"""A model file on machines that serve: what it takes besides the file."""
