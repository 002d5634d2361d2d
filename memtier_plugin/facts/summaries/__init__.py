"""Summaries of sessions and timelines of facts."""
