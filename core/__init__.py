"""What all other packages use: errors, files, JSON, ports, options and metadata."""
