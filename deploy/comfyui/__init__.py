"""ComfyUI: a node that runs a model file."""
