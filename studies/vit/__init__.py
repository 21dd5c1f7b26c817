"""Vision transformers, one for each attention: costs, and accuracy when trained alike."""
