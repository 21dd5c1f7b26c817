"""The resources of this machine and their use."""
