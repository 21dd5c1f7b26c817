"""What is known of a model file: its head, facts, manifest and recorded references."""
