"""Flags that several commands share, most of them made from records of options."""
