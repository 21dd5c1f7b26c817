"""What all other packages use: errors, files, JSON, ports, options and metadata."""

from .telemetry import turn_off

turn_off()
