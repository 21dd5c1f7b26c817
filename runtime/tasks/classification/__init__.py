"""Images to classes: what a file of the task ``classification`` says of them."""
