"""Flags that are made from records: mechanisms, videos, Ray, the automatic plan."""
