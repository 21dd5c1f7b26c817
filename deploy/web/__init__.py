"""A page that restores images in the browser."""
