"""A service under load, folders of pictures, Ray workers."""
