"""What the CUDA kernels take of a GPU, read off the machine code: no GPU is needed."""
