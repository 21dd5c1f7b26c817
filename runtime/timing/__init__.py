"""Time and memory of models, compared with others."""
