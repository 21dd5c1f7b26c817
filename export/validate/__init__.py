"""Validation: the file against PyTorch, the plan against full attention, and its speed."""
