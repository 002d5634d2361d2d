"""Dates in text: absolute, relative to the day of the utterance, and time spans in queries."""
