"""A service under load, folders of images, Ray workers."""
