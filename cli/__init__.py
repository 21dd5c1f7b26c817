"""The commands: arguments, output and exit codes. Everything else is in the packages they call."""
