"""Export, backup and import."""
