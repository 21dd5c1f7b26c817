"""``--attn auto``: the fastest plan within a budget, from measured times and measured changes."""
