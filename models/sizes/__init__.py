"""The sizes that a network takes, found by running it, and the padding put in front of it."""
