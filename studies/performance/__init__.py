"""Speed and memory of operators, files and engines on CPUs."""
