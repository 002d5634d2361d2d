"""Importers of other programs' exports and of our own."""
