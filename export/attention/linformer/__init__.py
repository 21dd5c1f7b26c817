"""Mechanism ``linformer``."""
