"""The task ``video``: frames through a model, one by one or several at once."""
