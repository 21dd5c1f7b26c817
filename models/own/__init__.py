"""Networks that nystra has no file of: a module of the user, its sizes and ports measured."""
