"""The stages of an export, one a file: each takes the records of those before and gives its own."""
