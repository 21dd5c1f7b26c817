"""Reading files that others made, and writing files so that a failure destroys nothing."""
