"""Finds attention in a traced network by its operators and the positions of its tokens."""
