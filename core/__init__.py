"""What every other package stands on: errors, files, JSON, ports, options and metadata."""
