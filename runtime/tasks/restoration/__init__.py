"""The task ``restoration``: images through a model, whole or in tiles, one or a folder of them."""
