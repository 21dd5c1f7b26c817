"""Child processes and pools of workers."""
