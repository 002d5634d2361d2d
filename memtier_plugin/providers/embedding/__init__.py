"""Embedding models: the shipped static one, others by folder, hub or endpoint."""
