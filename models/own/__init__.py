"""The user's own networks: a module, whose sizes and ports are measured."""
