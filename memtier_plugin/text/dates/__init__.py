"""Dates in text: stated, relative to the day of an utterance, and the spans that a query names."""
