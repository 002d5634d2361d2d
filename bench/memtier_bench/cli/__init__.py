"""CLI commands that measure and train."""
