"""Training of the small networks that ship with nystra."""
