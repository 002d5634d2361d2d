"""Purging: scan for copies, plan, rewrite, write a receipt."""
