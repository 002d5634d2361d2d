"""Commands of the terminal that measure and train."""
