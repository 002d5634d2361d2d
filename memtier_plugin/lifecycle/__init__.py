"""Forgetting, retention, purging, undo, and views of the past."""
