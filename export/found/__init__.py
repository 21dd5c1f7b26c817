"""Attention found in a traced network, by what its graph computes and where its tokens lie."""
