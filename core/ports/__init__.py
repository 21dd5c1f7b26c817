"""The inputs and outputs of a network, and what is derived from them."""
