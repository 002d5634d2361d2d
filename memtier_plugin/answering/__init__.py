"""Answers to questions, with the ledger lines they rest on."""
