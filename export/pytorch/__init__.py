"""PyTorch as a backend: the reference to compare with and to time."""
