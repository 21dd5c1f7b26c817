"""The tasks of model files: one folder per task, and a table of them."""
