"""Purging: scan for copies, plan, rewrite, receipt."""
