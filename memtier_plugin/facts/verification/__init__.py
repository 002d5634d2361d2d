"""Verification of claims against the passages they quote."""
