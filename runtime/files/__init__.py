"""Files and JSON, written so that a failure destroys nothing."""
