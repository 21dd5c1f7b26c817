"""What this machine has and how much of it is in use."""
