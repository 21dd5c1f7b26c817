"""Mechanisms on published networks, with the weights of their authors."""
