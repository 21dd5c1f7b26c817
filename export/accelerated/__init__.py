"""A PyTorch module that computes what another one does, faster."""
