"""Vision transformers: class token or pooling, exact attention or one trained as linear."""
