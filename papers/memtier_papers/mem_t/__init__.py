"""Mem-T: credit by trees of operations."""
