"""The process of each engine, in its own environment; only nystra's own worker imports nystra."""
