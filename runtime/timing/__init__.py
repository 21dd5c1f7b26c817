"""How long a model takes and how much memory, beside others."""
