"""Vision transformers, one per attention: costs, and accuracy after equal training."""
