"""Answers to questions, with the ledger lines that they cite."""
