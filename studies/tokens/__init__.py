"""Global attention over the tokens of an image: a small restorer, its loss and its costs."""
