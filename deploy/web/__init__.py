"""A page that restores pictures in the browser."""
