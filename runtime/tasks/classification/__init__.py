"""The task ``classification``: images to classes."""
