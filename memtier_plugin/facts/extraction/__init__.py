"""Candidate facts from text: by rules and by a language model."""
