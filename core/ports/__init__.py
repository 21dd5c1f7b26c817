"""What a network takes and gives, and everything that is made from it."""
