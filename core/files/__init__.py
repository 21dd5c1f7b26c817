"""Reading files of other programs, and writing files so that a failure destroys nothing."""
