"""Tests and timings on a GPU: packed on a machine without one, run there in stages."""
