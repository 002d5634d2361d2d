"""Telemetry: spans, metrics and Prometheus text, made from what is written to the ledgers."""
