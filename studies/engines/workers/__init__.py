"""The process of each engine, in an environment of its own; none needs nystra but its own."""
