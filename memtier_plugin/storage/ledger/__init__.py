"""Append-only JSONL files and atomic writes across several of them."""
