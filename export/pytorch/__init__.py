"""PyTorch as a thing to compare with and to time."""
