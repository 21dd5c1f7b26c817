"""The operator ``NystraAttention``."""
