"""The study of PSAL: search, memory, gradients, reconstruction, colorization, inpainting."""
