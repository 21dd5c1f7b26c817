"""The sizes that a network supports, determined by running it, and padding to them."""
